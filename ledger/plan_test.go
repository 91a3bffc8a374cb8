package ledger

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

func genHave(t *rapid.T) (have []int64, total int64) {
	n := rapid.IntRange(1, 257).Draw(t, "buckets")
	limit := rapid.SampledFrom([]int64{0, 1, 10, 1 << 20, math.MaxInt64}).Draw(t, "limit")
	for range n {
		v := min(rapid.Int64Range(0, limit).Draw(t, "have"), math.MaxInt64-total)
		have, total = append(have, v), total+v
	}
	return have, total
}

func TestDefundTakesInProportion(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		have, total := genHave(t)
		amount := rapid.Int64Range(0, total).Draw(t, "amount")
		sum := int64(0)
		for i, v := range Apportion(amount, have) {
			if v < 0 || v > have[i] {
				t.Fatalf("takes %d of %d", v, have[i])
			}
			sum += v
			// In proportion, but for what does not divide.
			exact := float64(have[i]) * float64(amount) / math.Max(float64(total), 1)
			if d := math.Abs(float64(v) - exact); d > float64(len(have))+exact*1e-9 {
				t.Fatalf("takes %d of %d, in proportion it is %.1f", v, have[i], exact)
			}
		}
		if sum != amount {
			t.Fatalf("takes %d in all, want %d", sum, amount)
		}
	})
}

func TestPlanPull(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		have, total := genHave(t)
		donors := make([]Bucket, len(have))
		for i, v := range have {
			donors[i] = Bucket{ID: BucketID{Index: uint16(i)}, Balances: Balances{Available: v}}
		}
		missing := rapid.Int64Range(-1, math.MaxInt64).Draw(t, "missing")
		if rapid.Bool().Draw(t, "fits") {
			missing = rapid.Int64Range(0, total).Draw(t, "missing")
		}
		pulls := PlanPull(donors, missing)
		if missing <= 0 || missing > total {
			if pulls != nil {
				t.Fatalf("pulls %v for %d of %d", pulls, missing, total)
			}
			return
		}
		sum, seen := int64(0), map[uint16]bool{}
		for i, p := range pulls {
			left := have[p.From.Index]
			if p.Amount <= 0 || p.Amount > left || seen[p.From.Index] {
				t.Fatalf("pull %d takes %d of %d from bucket %d (again: %v)", i, p.Amount, left, p.From.Index, seen[p.From.Index])
			}
			seen[p.From.Index] = true
			if i < len(pulls)-1 && p.Amount != left {
				t.Fatalf("pull %d leaves %d although another follows", i, left-p.Amount)
			}
			sum += p.Amount
		}
		if sum < missing {
			t.Fatalf("pulls %d in all, %d are missing", sum, missing)
		}
		for i, v := range have { // as few as possible: the richest first
			for j := range pulls {
				if !seen[uint16(i)] && v > have[pulls[j].From.Index] {
					t.Fatalf("bucket %d has %d and gives nothing, bucket %d has less and gives", i, v, pulls[j].From.Index)
				}
			}
		}
	})
}

func TestMoveEntries(t *testing.T) {
	from := &Bucket{ID: BucketID{Index: 1}, Balances: Balances{Funded: 10, Available: 10}, Seq: 4}
	to := &Bucket{ID: BucketID{Index: 2}, Balances: Balances{Funded: 5, Reserved: 5}, Seq: 9}
	out, in, r := MoveEntries(from, to, 7, "pull")
	if r != nil || out.Seq != 5 || in.Seq != 10 || *out.Peer != to.ID || *in.Peer != from.ID || out.Cause != "pull" || in.Cause != "pull" ||
		out.After != (Balances{Funded: 3, Available: 3}) || in.After != (Balances{Funded: 12, Available: 7, Reserved: 5}) {
		t.Errorf("%+v, %+v, %v", out, in, r)
	}
	if _, _, r := MoveEntries(from, to, 11, "pull"); r == nil || r.Code != Corrupt {
		t.Errorf("a move of more than there is: %v", r)
	}
}

func TestBalancesCheck(t *testing.T) {
	for _, b := range []Balances{{}, {Funded: 10, Available: 3, Reserved: 4, Committed: 5, Reversed: 2}, {Funded: math.MaxInt64, Available: math.MaxInt64}} {
		if err := b.Check(0); err != nil {
			t.Errorf("%+v: %v", b, err)
		}
	}
	for _, b := range []Balances{
		{Available: 1},
		{Funded: -1, Available: -1},
		{Available: -1, Reserved: 1},
		{Available: 1, Reserved: -1},
		{Available: 1, Committed: -1},
		{Committed: 1, Reversed: 2, Available: 1},
		{Funded: 10, Available: 9},
		{Funded: -2, Available: math.MaxInt64, Reserved: math.MaxInt64},
	} {
		if b.Check(0) == nil {
			t.Errorf("%+v passes", b)
		}
	}
}
