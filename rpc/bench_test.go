package rpc

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connecthttp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/coffer-ledger/coffer/ledger"
	cofferv1 "github.com/coffer-ledger/coffer/proto/gen/coffer/v1"
	"github.com/coffer-ledger/coffer/proto/gen/coffer/v1/cofferv1connect"
	"github.com/coffer-ledger/coffer/rpc/access"
)

// noop answers at once: what is left is the cost of the stack.
type noop struct {
	cofferv1connect.UnimplementedReservationServiceHandler
	Executor
}

func (noop) Do(_ context.Context, c ledger.Command) (ledger.Result, error) {
	return accepted(c.Normalize()), nil
}

func (noop) Reserve(_ context.Context, m *cofferv1.ReserveRequest) (*cofferv1.ReserveResponse, error) {
	c, _ := reserveOf("default", m)
	r := accepted(c.Normalize())
	return &cofferv1.ReserveResponse{Outcome: resultOf(&r)}, nil
}

// BenchmarkReserve compares the whole server with the bare transport under
// it: the difference is what interceptors and checks cost.
func BenchmarkReserve(b *testing.B) {
	bare := http.NewServeMux()
	s := connect.NewServer()
	cofferv1connect.RegisterReservationServiceHandler(s, noop{})
	connecthttp.Mount(bare, s)
	full := func(tokens Tokens) http.Handler {
		s, err := NewServer(DefaultConfig(), Deps{
			Executor: noop{}, Reader: &fakeStore{}, Maintainer: &fakeStore{}, Registerer: prometheus.NewRegistry(),
			Status: func(context.Context) Status { return Status{} }, Log: zerolog.Nop(), Tokens: tokens,
		})
		if err != nil {
			b.Fatal(err)
		}
		return s
	}
	r := &ring{t: b}
	token := r.add("checkout", "shop", access.Service, time.Time{})
	for name, h := range map[string]http.Handler{"bare": bare, "full": full(nil), "tokens": full(r.tokens)} {
		b.Run(name, func(b *testing.B) {
			hs := httptest.NewServer(h)
			defer hs.Close()
			c := NewClient(hs.URL, WithToken(token))
			defer c.Close()
			b.SetParallelism(32)
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if _, err := c.Reservations().Reserve(context.Background(), reserveRequest()); err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
	}
}

// BenchmarkAdmit is what tokens add to a call.
func BenchmarkAdmit(b *testing.B) {
	r := &ring{t: b}
	values := []string{"Bearer " + r.add("checkout", "shop", access.Service, time.Now().Add(time.Hour))}
	tokens := Tokens(r.tokens)
	b.ReportAllocs()
	for b.Loop() {
		const procedure = cofferv1connect.ReservationServiceReserveProcedure
		e, rej := tokens.admit(values, procedure, permissions[procedure])
		if rej != nil {
			b.Fatal(rej)
		}
		if tenant, rej := tenantFor(e, nil, "default"); rej != nil || tenant != "shop" {
			b.Fatal(tenant, rej)
		}
	}
}

// BenchmarkValidate is the cost of the schema's rules for one Reserve.
func BenchmarkValidate(b *testing.B) {
	v, err := newValidator()
	if err != nil {
		b.Fatal(err)
	}
	m := reserveRequest()
	b.ReportAllocs()
	for b.Loop() {
		if err := v.Validate(m); err != nil {
			b.Fatal(err)
		}
	}
}
