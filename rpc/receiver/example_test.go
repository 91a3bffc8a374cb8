package receiver_test

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/coffer-ledger/coffer/ledger/event"
	"github.com/coffer-ledger/coffer/rpc/inbox"
	"github.com/coffer-ledger/coffer/rpc/inbox/inboxtest"
	"github.com/coffer-ledger/coffer/rpc/receiver"
)

// A service that gives points for what was paid, once and in order.
func Example() {
	secret := receiver.NewSecret() // what "coffer events sinks create" printed
	_, db := inboxtest.New()       // a PostgreSQL, in earnest
	defer db.Close()

	key, err := receiver.ParseKey("1", secret) // the id it printed with it
	if err != nil {
		panic(err)
	}
	in, err := inbox.New(inbox.Config{Consumer: "points", FromStart: true})
	if err != nil {
		panic(err)
	}
	// in.Schema() has the statements that make its tables, for the migrations of
	// the service.
	hook, err := receiver.New(receiver.Config{
		Keys: []receiver.Key{key},
		Handle: receiver.InOrder(in, db, func(ctx context.Context, tx *sql.Tx, e *event.Event) error {
			d := e.Data()
			fmt.Printf("%s: order %s, %d %s\n", e.Type(), d.OrderID, d.Delta.Committed, d.Currency)
			_, err := tx.ExecContext(ctx, inboxtest.Add, d.Delta.Committed)
			return err
		}),
	})
	if err != nil {
		panic(err)
	}
	// http.Handle("/coffer", hook); here a request that comes twice, and one that
	// overtook another:
	for _, e := range []*event.Event{committed(7, 1), committed(7, 1), committed(7, 3)} {
		body, err := e.MarshalJSON()
		if err != nil {
			panic(err)
		}
		req := httptest.NewRequest(http.MethodPost, "/coffer", bytes.NewReader(body))
		req.Header.Set("Content-Type", event.ContentType)
		key.Sign(req.Header, e.ID(), time.Now(), body)
		answer := httptest.NewRecorder()
		hook.ServeHTTP(answer, req)
		fmt.Println(answer.Code)
	}
	// Output:
	// coffer.reservation.committed.v1: order o-7, 5 BRL
	// 204
	// 204
	// 425
}
