package kv

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// scripted is a store whose commits answer by a script; after its end they
// succeed.
type scripted struct {
	commits []func(context.Context) error
	begins  int
	cancels int
	beginOf func(int) error
}

type scriptedTx struct {
	Tx
	s *scripted
}

func (s *scripted) Begin(ctx context.Context) (Tx, error) {
	s.begins++
	if s.beginOf != nil {
		if err := s.beginOf(s.begins); err != nil {
			return nil, err
		}
	}
	return scriptedTx{s: s}, nil
}

func (s *scripted) Watch(context.Context, []byte) (Watch, error) { return nil, nil }
func (s *scripted) Close() error                                 { return nil }

func (t scriptedTx) Cancel()          { t.s.cancels++ }
func (t scriptedTx) Snapshot() Reader { return nil }

func (t scriptedTx) Commit(ctx context.Context) (Stamp, error) {
	if len(t.s.commits) == 0 {
		return Stamp{1}, nil
	}
	c := t.s.commits[0]
	t.s.commits = t.s.commits[1:]
	return Stamp{}, c(ctx)
}

func answer(c Code) func(context.Context) error {
	return func(context.Context) error { return &Error{Code: c, Op: "commit"} }
}

var errDecided = errors.New("decided otherwise")

func TestTransactOutcomes(t *testing.T) {
	const conflict, unknown, timedOut, tooLarge, io = CodeConflict, CodeCommitUnknown, CodeTimedOut, CodeTxTooLarge, CodeIO
	for name, c := range map[string]struct {
		script   []Code
		fnErr    map[int]error // by attempt
		want     error         // nil: committed
		outcome  Outcome
		attempts int
		bare     bool // not a *TxError
		doubts   []bool
	}{
		"committed":                        {attempts: 1, doubts: []bool{false}},
		"conflict, then committed":         {script: []Code{conflict}, attempts: 2, doubts: []bool{false, false}},
		"too old, then committed":          {script: []Code{CodeTooOld}, attempts: 2, doubts: []bool{false, false}},
		"unknown, then committed":          {script: []Code{unknown}, attempts: 2, doubts: []bool{false, true}},
		"doubt stays over a conflict":      {script: []Code{unknown, conflict}, attempts: 3, doubts: []bool{false, true, true}},
		"doubt stays to the end":           {script: []Code{unknown, tooLarge}, want: ErrTxTooLarge, outcome: Unknown, attempts: 2, doubts: []bool{false, true}},
		"too large is final":               {script: []Code{tooLarge}, want: ErrTxTooLarge, attempts: 1, doubts: []bool{false}},
		"timed out in commit is not rerun": {script: []Code{timedOut}, want: ErrTimedOut, outcome: Unknown, attempts: 1, doubts: []bool{false}},
		"i/o error in commit":              {script: []Code{io}, want: &Error{Code: io}, outcome: Unknown, attempts: 1, doubts: []bool{false}},
		"own error ends it":                {fnErr: map[int]error{1: errDecided}, want: errDecided, bare: true, attempts: 1, doubts: []bool{false}},
		"own error after a conflict":       {script: []Code{conflict}, fnErr: map[int]error{2: errDecided}, want: errDecided, bare: true, attempts: 2, doubts: []bool{false, false}},
		"own error after a doubt":          {script: []Code{unknown}, fnErr: map[int]error{2: errDecided}, want: errDecided, outcome: Unknown, attempts: 2, doubts: []bool{false, true}},
		"read error is run again":          {fnErr: map[int]error{1: &Error{Code: CodeTooOld, Op: "get"}}, attempts: 2, doubts: []bool{false, false}},
		"read timeout has no doubt":        {fnErr: map[int]error{1: &Error{Code: timedOut, Op: "get"}}, want: ErrTimedOut, attempts: 1, doubts: []bool{false}},
	} {
		t.Run(name, func(t *testing.T) {
			s := &scripted{}
			for _, code := range c.script {
				s.commits = append(s.commits, answer(code))
			}
			var doubts []bool
			stamp, err := Transact(t.Context(), s, Options{MaxBackoff: time.Microsecond}, func(_ Tx, a Attempt) error {
				doubts = append(doubts, a.MayHaveCommitted)
				if a.Number != len(doubts) {
					t.Errorf("attempt number %d, want %d", a.Number, len(doubts))
				}
				return c.fnErr[a.Number]
			})
			var te *TxError
			switch {
			case c.want == nil && (err != nil || stamp == Stamp{}):
				t.Fatalf("stamp %v, error %v, want committed", stamp, err)
			case !errors.Is(err, c.want):
				t.Fatalf("error %v, want %v", err, c.want)
			case c.want != nil && errors.As(err, &te) == c.bare:
				t.Fatalf("error %#v; a *TxError: want %v", err, !c.bare)
			case te != nil && te.Attempts != c.attempts:
				t.Fatalf("%d attempts reported, want %d", te.Attempts, c.attempts)
			}
			if OutcomeOf(err) != c.outcome || len(doubts) != c.attempts {
				t.Fatalf("outcome %v after %d attempts, want %v after %d", OutcomeOf(err), len(doubts), c.outcome, c.attempts)
			}
			for i := range doubts {
				if doubts[i] != c.doubts[i] {
					t.Fatalf("doubts %v, want %v", doubts, c.doubts)
				}
			}
			if s.begins != s.cancels {
				t.Fatalf("%d begun, %d cancelled", s.begins, s.cancels)
			}
		})
	}
}

func TestTransactRetryLimit(t *testing.T) {
	for _, c := range []struct {
		code    Code
		outcome Outcome
	}{{CodeConflict, NotCommitted}, {CodeCommitUnknown, Unknown}} {
		s := &scripted{}
		for range 100 {
			s.commits = append(s.commits, answer(c.code))
		}
		_, err := Transact(t.Context(), s, Options{Retries: 5, MaxBackoff: time.Microsecond}, func(Tx, Attempt) error { return nil })
		if !errors.Is(err, ErrRetriesExhausted) || !errors.Is(err, &Error{Code: c.code}) || OutcomeOf(err) != c.outcome || s.begins != 6 {
			t.Fatalf("after %d attempts: %v, outcome %v", s.begins, err, OutcomeOf(err))
		}
	}
}

func TestTransactTimeoutSpansRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &scripted{}
		for range 10_000 {
			s.commits = append(s.commits, func(context.Context) error {
				time.Sleep(10 * time.Millisecond)
				return &Error{Code: CodeConflict}
			})
		}
		start := time.Now()
		_, err := Transact(t.Context(), s, Options{Timeout: time.Second, Retries: 9999}, func(Tx, Attempt) error { return nil })
		if took := time.Since(start); took < time.Second || took > time.Second+10*time.Millisecond {
			t.Fatalf("took %v", took)
		}
		var te *TxError
		if !errors.As(err, &te) || te.Outcome != NotCommitted || te.Attempts < 5 {
			t.Fatalf("got %v", err)
		}
	})
}

func TestTransactContextEndsDuringCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wait := func(ctx context.Context) error {
			<-ctx.Done()
			return ContextError(ctx, "commit")
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		for _, c := range []struct {
			ctx  context.Context
			want error
		}{{ctx, ErrCancelled}, {t.Context(), ErrTimedOut}} {
			s := &scripted{commits: []func(context.Context) error{wait}}
			_, err := Transact(c.ctx, s, Options{}, func(Tx, Attempt) error { return nil })
			if !errors.Is(err, c.want) || OutcomeOf(err) != Unknown || s.begins != 1 {
				t.Fatalf("%v, outcome %v, %d attempts", err, OutcomeOf(err), s.begins)
			}
		}
	})
}

func TestTransactContextEndedBefore(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s := &scripted{}
	_, err := Transact(ctx, s, Options{}, func(Tx, Attempt) error { return nil })
	if !errors.Is(err, ErrCancelled) || OutcomeOf(err) != NotCommitted || s.begins != 0 {
		t.Fatalf("%v, outcome %v", err, OutcomeOf(err))
	}
}

func TestTransactBackoffIsCapped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &scripted{}
		for range 50 {
			s.commits = append(s.commits, answer(CodeConflict))
		}
		start := time.Now()
		if _, err := Transact(t.Context(), s, Options{Timeout: time.Hour, Retries: 50, MaxBackoff: 100 * time.Millisecond},
			func(Tx, Attempt) error { return nil }); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took > 50*100*time.Millisecond {
			t.Fatalf("50 pauses took %v", took)
		}
	})
}

func TestTransactBeginErrors(t *testing.T) {
	s := &scripted{beginOf: func(n int) error {
		if n < 3 {
			return &Error{Code: CodeProcessBehind, Op: "begin"}
		}
		return nil
	}}
	if _, err := Transact(t.Context(), s, Options{MaxBackoff: time.Microsecond}, func(Tx, Attempt) error { return nil }); err != nil || s.begins != 3 {
		t.Fatalf("%v after %d", err, s.begins)
	}
	s = &scripted{beginOf: func(int) error { return &Error{Code: CodeClosed, Op: "begin"} }}
	_, err := Transact(t.Context(), s, Options{}, func(Tx, Attempt) error { return nil })
	if !errors.Is(err, ErrClosed) || OutcomeOf(err) != NotCommitted || s.begins != 1 {
		t.Fatalf("%v after %d", err, s.begins)
	}
}

func TestTransactUntypedCommitErrorIsUnknown(t *testing.T) {
	s := &scripted{commits: []func(context.Context) error{func(context.Context) error { return errDecided }}}
	_, err := Transact(t.Context(), s, Options{}, func(Tx, Attempt) error { return nil })
	if !errors.Is(err, errDecided) || OutcomeOf(err) != Unknown {
		t.Fatalf("%v, outcome %v", err, OutcomeOf(err))
	}
}
