package places

import "slices"

// Line holds what waits, by tenant: each tenant's in the order it came, and the
// tenants one after the other. So a tenant that has much in it makes the others
// wait for one each of its own. The zero value is empty. Whoever has it guards it.
type Line[T any] struct {
	of    map[string]*waiting[T]
	order []*waiting[T] // those with something
	next  int           // whose turn it is, in order
}

type waiting[T any] struct {
	tenant string
	items  []T
}

// Add puts an item behind its tenant's others, unless these are limit already.
// It gives how many they are then, or would be.
func (l *Line[T]) Add(tenant string, item T, limit int) (n int, ok bool) {
	w := l.of[tenant]
	if w == nil {
		if l.of == nil {
			l.of = map[string]*waiting[T]{}
		}
		w = &waiting[T]{tenant: tenant}
	}
	if n = len(w.items) + 1; n > limit {
		return n, false
	}
	if w.items = append(w.items, item); n == 1 {
		l.of[tenant] = w
		l.order = slices.Insert(l.order, min(l.next, len(l.order)), w) // behind all others
		l.next++
	}
	return n, true
}

// Take gives the next item, if there is one.
func (l *Line[T]) Take() (item T, ok bool) {
	if len(l.order) == 0 {
		return item, false
	}
	if l.next >= len(l.order) {
		l.next = 0
	}
	w := l.order[l.next]
	item, w.items[0] = w.items[0], item // which keeps nothing of it
	if w.items = w.items[1:]; len(w.items) > 0 {
		l.next++
	} else {
		delete(l.of, w.tenant)
		l.order = slices.Delete(l.order, l.next, l.next+1)
	}
	return item, true
}

// Len is how many items wait.
func (l *Line[T]) Len() (n int) {
	for _, w := range l.order {
		n += len(w.items)
	}
	return n
}

// Of is how many items of a tenant wait.
func (l *Line[T]) Of(tenant string) int {
	if w := l.of[tenant]; w != nil {
		return len(w.items)
	}
	return 0
}
