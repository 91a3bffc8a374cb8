package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	cofferv1 "github.com/coffer-ledger/coffer/proto/gen/coffer/v1"
)

type walletCmd struct {
	remote `embed:""`

	Create    walletCreate    `cmd:"" help:"Make an empty wallet."`
	Grant     walletGrant     `cmd:"" help:"Put credits into a wallet."`
	List      walletList      `cmd:"" help:"List the tenant's wallets."`
	Get       walletGet       `cmd:"" help:"Show one wallet."`
	Statement walletStatement `cmd:"" help:"Show a wallet's account up to a cutoff."`
}

type walletCreate struct {
	Wallet      string        `arg:"" help:"Name: KEY or FUNDER/KEY."`
	Currency    string        `help:"ISO 4217 code, or a custom unit such as CREDIT." required:"" placeholder:"CREDIT"`
	Overdraft   string        `help:"How far below zero charges, holds and settlements may go, in major units (default: 0)." placeholder:"10" range:"0 or more"`
	DebtCap     string        `help:"How far below zero the cost of delivered work may go, in major units (default: 0)." placeholder:"100" range:"0 or more"`
	OverPercent int32         `help:"Percent by which a settlement may exceed its hold (default: 0)." placeholder:"10" range:"0 to 1000"`
	OverAmount  string        `help:"Amount by which a settlement may exceed its hold, in major units (default: 0)." placeholder:"5" range:"0 or more"`
	LateSettle  string        `help:"What a settlement after the hold's expiry does: reject it, reclaim (take the credits again, if they are there) or open a case for a person." enum:"reject,reclaim,case" default:"reclaim"`
	MaxLifetime time.Duration `help:"Longest life of a hold, extensions included (default 7 days)." placeholder:"168h" range:"1s to 9600h"`
}

// Help is the long help.
func (walletCreate) Help() string {
	return `Creating a wallet again with the same definition does nothing.

Example:
  coffer wallet create acme --currency CREDIT --debt-cap 100`
}

// Run creates the wallet.
func (w *walletCreate) Run(c *cli) error {
	p := &cofferv1.WalletPolicy{LateSettle: cofferv1.LateCommit(cofferv1.LateCommit_value["LATE_COMMIT_"+enumName(w.LateSettle)])}
	over := &cofferv1.OverCommit{Percent: w.OverPercent}
	for _, f := range []struct {
		flag, text string
		to         *int64
	}{{"--overdraft", w.Overdraft, &p.OverdraftMinor}, {"--debt-cap", w.DebtCap, &p.DebtCapMinor}, {"--over-amount", w.OverAmount, &over.AmountMinor}} {
		if f.text == "" {
			continue
		}
		v, err := parseMajor(f.flag, f.text, w.Currency)
		if err != nil {
			return usageError{err}
		}
		*f.to = v
	}
	if over.Percent != 0 || over.AmountMinor != 0 {
		p.OverCommit = over
	}
	if w.MaxLifetime != 0 {
		p.MaxLifetime = durationpb.New(w.MaxLifetime)
	}
	res, err := onServer(c, func(ctx context.Context, s *server) (*cofferv1.CreateWalletResponse, error) {
		return s.CreateWallet(ctx, &cofferv1.CreateWalletRequest{Wallet: w.Wallet, Currency: w.Currency, Policy: p})
	})
	if err != nil {
		return err
	}
	if c.JSON {
		return c.printMessage(res)
	}
	if res.Replayed { // its first answer is an empty wallet
		c.printf("wallet %s created\ndone before; \"coffer wallet get %s\" shows what it has now\n", w.Wallet, w.Wallet)
		return nil
	}
	c.printf("wallet %s created\n\n", w.Wallet)
	c.walletTable(res.Wallet)
	return nil
}

type walletGrant struct {
	Wallet   string `arg:"" help:"Name of the wallet: KEY or FUNDER/KEY."`
	moneyIn  `embed:""`
	Currency string `help:"Currency, checked against the wallet's (default: the wallet's)." placeholder:"CREDIT"`
	keyed    `embed:""`
}

// Help is the long help.
func (walletGrant) Help() string {
	return `The same --key grants once, however often it is sent.

Example:
  coffer wallet grant acme --amount 500 --key invoice-2026-05`
}

// Run grants.
func (w *walletGrant) Run(c *cli) error {
	if err := w.check(true); err != nil {
		return err
	}
	return c.withServer(func(ctx context.Context, s *server) error {
		if w.Currency == "" {
			got, err := s.GetWallet(ctx, w.Wallet)
			if err != nil {
				return s.unsent("the currency of wallet "+w.Wallet, err)
			}
			w.Currency = got.GetCurrency()
		}
		s.known = w.Currency
		amount, err := w.minor(w.Currency)
		if err != nil {
			return err
		}
		res, err := s.Grant(ctx, &cofferv1.GrantRequest{Wallet: w.Wallet, AmountMinor: amount, Currency: w.Currency, IdempotencyKey: w.get()})
		if err != nil {
			return w.hint(s.explain(err))
		}
		if c.JSON {
			return c.printMessage(res)
		}
		if res.Replayed {
			c.printf("done before; this is the first answer\n")
		}
		c.printf("wallet %s granted %s\n\n", w.Wallet, money(amount, w.Currency))
		c.walletTable(res.Wallet)
		return nil
	})
}

type walletList struct {
	paged `embed:""`
}

// Help is the long help.
func (walletList) Help() string { return "Example:\n  coffer wallet list --json" }

// Run lists wallets.
func (w *walletList) Run(c *cli) error {
	res, err := onServer(c, func(ctx context.Context, s *server) (*cofferv1.ListWalletsResponse, error) {
		return s.ListWallets(ctx, &cofferv1.ListWalletsRequest{PageSize: w.Limit, PageToken: w.Page})
	})
	if err != nil {
		return err
	}
	if c.JSON {
		return c.printMessage(res)
	}
	if len(res.Wallets) == 0 && res.NextPageToken == "" {
		c.printf("%s has no wallets; make one with: coffer wallet create NAME --currency CREDIT\n", c.tenantName())
		return nil
	}
	c.walletTable(res.Wallets...)
	c.more(res.NextPageToken)
	return nil
}

type walletGet struct {
	Wallet string `arg:"" help:"Name of the wallet: KEY or FUNDER/KEY."`
}

// Help is the long help.
func (walletGet) Help() string { return "Example:\n  coffer wallet get acme" }

// Run shows one wallet.
func (w *walletGet) Run(c *cli) error {
	res, err := onServer(c, func(ctx context.Context, s *server) (*cofferv1.Wallet, error) {
		return s.GetWallet(ctx, w.Wallet)
	})
	if err != nil {
		return err
	}
	if c.JSON {
		return c.printMessage(res)
	}
	c.walletTable(res)
	p, cur := res.GetPolicy(), res.GetCurrency()
	c.printf("\noverdraft %s, debt cap %s, late settle %s, longest life of a hold %s\n", money(p.GetOverdraftMinor(), cur), money(p.GetDebtCapMinor(), cur),
		shortEnum(p.GetLateSettle(), "LATE_COMMIT_"), span(p.GetMaxLifetime().AsDuration()))
	return nil
}

func (c *cli) walletTable(wallets ...*cofferv1.Wallet) {
	t := c.table(table.Row{"wallet", "state", "balance", "debt", "spendable", "held", "spent", "granted", "currency"},
		"balance", "debt", "spendable", "held", "spent", "granted")
	for _, w := range wallets {
		cur, debt := w.GetCurrency(), ""
		if w.GetDebtMinor() > 0 {
			debt = formatMajor(w.GetDebtMinor(), cur)
		}
		t.row(w.GetWallet(), shortEnum(w.GetState(), "BUDGET_STATE_"), formatMajor(w.GetBalanceMinor(), cur), debt, formatMajor(w.GetSpendableMinor(), cur),
			formatMajor(w.GetHeldMinor(), cur), formatMajor(w.GetSpentMinor(), cur), formatMajor(w.GetGrantedMinor(), cur), cur)
	}
	t.print()
}

type walletStatement struct {
	Wallet string `arg:"" help:"Name of the wallet: KEY or FUNDER/KEY."`
	From   string `help:"First moment, RFC 3339 (default: the beginning)." placeholder:"TIME"`
	Cutoff string `help:"Last moment, RFC 3339 (default: now)." placeholder:"TIME"`
	paged  `embed:""`
}

// Help is the long help.
func (walletStatement) Help() string {
	return `The balance before, what changed it with the balance after each row, and the
balance at the cutoff.

Examples:
  coffer wallet statement acme
  coffer wallet statement acme --from 2026-05-01T00:00:00Z --cutoff 2026-05-31T23:59:59.999Z`
}

// Run shows the statement.
func (w *walletStatement) Run(c *cli) error {
	req := &cofferv1.StatementRequest{Wallet: w.Wallet, PageSize: w.Limit, PageToken: w.Page}
	var err error
	if req.FromTime, err = moment("--from", w.From); err != nil {
		return err
	}
	if req.CutoffTime, err = moment("--cutoff", w.Cutoff); err != nil {
		return err
	}
	res, err := onServer(c, func(ctx context.Context, s *server) (*cofferv1.StatementResponse, error) {
		return s.Statement(ctx, req)
	})
	if err != nil {
		return err
	}
	if c.JSON {
		return c.printMessage(res)
	}
	cur := res.GetCurrency()
	t := c.table(table.Row{"time", "what", "job", "amount", "balance", "entry", "cause"}, "amount", "balance", "entry")
	t.row(clock(res.GetFromTime()), "opening balance", "", "", formatMajor(res.GetOpeningBalanceMinor(), cur), "", "")
	for _, r := range res.GetRows() {
		sign := ""
		if r.GetAmountMinor() > 0 {
			sign = "+"
		}
		t.row(clock(r.GetTime()), shortEnum(r.GetType(), "ENTRY_TYPE_"), r.GetJobId(), sign+formatMajor(r.GetAmountMinor(), cur),
			formatMajor(r.GetBalanceMinor(), cur), r.GetEntrySeq(), r.GetCause())
	}
	if res.GetNextPageToken() == "" {
		t.row(clock(res.GetCutoffTime()), "closing balance", "", "", formatMajor(res.GetClosingBalanceMinor(), cur), "", "")
	}
	c.printf("wallet %s, %s\n\n", res.GetWallet(), cur)
	t.print()
	c.more(res.GetNextPageToken())
	return nil
}

// moment reads a flag that is a point in time; empty is unset.
func moment(flag, text string) (*timestamppb.Timestamp, error) {
	if text == "" {
		return nil, nil
	}
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return nil, usageError{fmt.Errorf("%s %.40q is not a time (allowed: RFC 3339, such as 2026-05-31T12:00:00Z)", flag, text)}
	}
	return timestamppb.New(t), nil
}
