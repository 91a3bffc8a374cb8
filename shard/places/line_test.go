package places

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestLineTakesTurns(t *testing.T) {
	var l Line[string]
	for _, s := range []string{"a1", "a2", "a3", "a4", "b1", "c1", "c2"} {
		if _, ok := l.Add(s[:1], s, 4); !ok {
			t.Fatalf("%s was not taken", s)
		}
	}
	if l.Len() != 7 || l.Of("a") != 4 || l.Of("b") != 1 || l.Of("d") != 0 {
		t.Errorf("%d wait, %d of a, %d of b, %d of d", l.Len(), l.Of("a"), l.Of("b"), l.Of("d"))
	}
	if n, ok := l.Add("a", "a5", 4); n != 5 || ok {
		t.Errorf("a fifth: number %d, taken %v", n, ok)
	}
	var got []string
	for s, ok := l.Take(); ok; s, ok = l.Take() {
		if got = append(got, s); len(got) == 2 {
			l.Add("d", "d1", 4)
		}
	}
	if want := []string{"a1", "b1", "c1", "a2", "d1", "c2", "a3", "a4"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if len(l.of) != 0 || len(l.order) != 0 {
		t.Errorf("something is left: %v %v", l.of, l.order)
	}
}

// Whatever comes and goes, everything leaves once and in its tenant's order, and
// no tenant that waits is passed by another one twice.
func TestLineIsFair(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var l Line[int]
		waits, passed := map[int][]int{}, map[int]map[int]int{} // by tenant
		for i := range rapid.IntRange(1, 200).Draw(t, "steps") {
			if rapid.Bool().Draw(t, "add") {
				k := rapid.IntRange(0, 4).Draw(t, "tenant")
				if len(waits[k]) == 0 {
					passed[k] = map[int]int{}
				}
				waits[k] = append(waits[k], i*5+k)
				l.Add(fmt.Sprint(k), i*5+k, 1000)
				continue
			}
			got, ok := l.Take()
			k := got % 5
			if !ok {
				for k, w := range waits {
					if len(w) > 0 {
						t.Fatalf("tenant %d waits, and nothing is given", k)
					}
				}
				continue
			}
			if len(waits[k]) == 0 || waits[k][0] != got {
				t.Fatalf("got %d, tenant %d waits for %v", got, k, waits[k])
			}
			waits[k] = waits[k][1:]
			passed[k] = map[int]int{}
			for other, w := range waits {
				if other == k || len(w) == 0 {
					continue
				}
				if passed[other][k]++; passed[other][k] > 1 {
					t.Fatalf("tenant %d was passed by %d %d times", other, k, passed[other][k])
				}
			}
		}
	})
}
