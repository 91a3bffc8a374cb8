package ledger

import (
	"strings"
	"testing"
	"time"
)

// good are valid commands that the tests of validation spoil.
func good(op Op) Command {
	c := Command{
		Op: op, Key: OrderKey{Tenant: "t1", Order: "o", Benefit: "coupon"}, ID: "id", Amount: 10, Currency: "BRL", TTL: time.Minute,
		Budget: BudgetID{Tenant: "t1", Key: "spring"}, Target: OpCommit, Buckets: 4,
	}
	if op == OpReserve {
		c.ID = ""
	}
	return c.Normalize()
}

func TestGoodCommandsPass(t *testing.T) {
	for op := OpReserve; op <= OpClose; op++ {
		c := good(op)
		if r := c.Validate(); r != nil {
			t.Errorf("%s: %v", op, r)
		}
	}
	for _, c := range []Command{{Op: OpCommit, Key: good(OpCommit).Key}, {Op: OpRelease, Key: good(OpCommit).Key}, {Op: OpResolve, Key: good(OpCommit).Key, Target: OpReserve}} {
		if r := c.Validate(); r != nil {
			t.Errorf("%s with the least it needs: %v", c.Op, r)
		}
	}
}

// Nobody makes budgets for every tenant; one that is there already is not lost.
func TestEveryTenantsBudgetIsReached(t *testing.T) {
	for op := OpReserve; op <= OpClose; op++ {
		c := good(op)
		if op != OpCreate {
			c.Key.Tenant, c.Budget.Tenant = EveryTenant, EveryTenant
		}
		if r := c.Validate(); r != nil {
			t.Errorf("%s: %v", op, r)
		}
	}
}

// Every bad input names field, value and limit.
func TestBadInput(t *testing.T) {
	const amounts = "1 to 9223372036854775807 minor units"
	const currencies = "an ISO 4217 code in use, such as BRL, or a custom unit of 4 to 12 characters A-Z, 0-9, _"
	long := strings.Repeat("x", 129)
	longValue := `"` + strings.Repeat("x", 32) + `"… (129 bytes)`
	for _, tc := range []struct {
		name                string
		op                  Op
		edit                func(c *Command)
		field, value, limit string
	}{
		{"unknown operation", 99, func(*Command) {}, "operation", "99", "a known operation"},
		{"no operation", 0, func(*Command) {}, "operation", "0", "a known operation"},
		{"no tenant", OpCommit, func(c *Command) { c.Key.Tenant = "" }, "tenant", `""`, "1 to 128 bytes"},
		{"a budget of every tenant", OpCreate, func(c *Command) { c.Budget.Tenant = "*" }, "tenant", `"*"`, "the name of one tenant"},
		{"no order", OpReserve, func(c *Command) { c.Key.Order = "" }, "order_id", `""`, "1 to 128 bytes"},
		{"long order", OpReserve, func(c *Command) { c.Key.Order = long }, "order_id", longValue, "128 bytes"},
		{"order with NUL", OpReserve, func(c *Command) { c.Key.Order = "a\x00b" }, "order_id", `"a\x00b"`, "no control characters"},
		{"order with DEL", OpReserve, func(c *Command) { c.Key.Order = "a\x7f" }, "order_id", `"a\x7f"`, "no control characters"},
		{"order with newline", OpReserve, func(c *Command) { c.Key.Order = "a\n" }, "order_id", `"a\n"`, "no control characters"},
		{"order not UTF-8", OpReserve, func(c *Command) { c.Key.Order = "\xff" }, "order_id", `"\xff"`, "UTF-8"},
		{"no benefit", OpCommit, func(c *Command) { c.Key.Benefit = "" }, "benefit_key", `""`, "1 to 128 bytes"},
		{"long benefit", OpCommit, func(c *Command) { c.Key.Benefit = long }, "benefit_key", longValue, "128 bytes"},
		{"long correlation", OpCommit, func(c *Command) { c.Correlation = long }, "correlation_id", longValue, "128 bytes"},
		{"no budget", OpReserve, func(c *Command) { c.Budget = BudgetID{} }, "tenant", `""`, "1 to 128 bytes"},
		{"no budget key", OpReserve, func(c *Command) { c.Budget.Key = "" }, "budget", `""`, "1 to 128 bytes"},
		{"slash in the budget key", OpReserve, func(c *Command) { c.Budget.Key = "a/b" }, "budget", "a/b", "at most one slash, between funder and key"},
		{"slash in the funder", OpFund, func(c *Command) { c.Budget.Funder = "a/b" }, "budget", "a/b/spring", "at most one slash, between funder and key"},
		{"funder not UTF-8", OpFund, func(c *Command) { c.Budget.Funder = "\xff" }, "budget", `"\xff"`, "UTF-8"},
		{"bad budget hint", OpCommit, func(c *Command) { c.Budget.Key = "a\x00" }, "budget", `"a\x00"`, "no control characters"},
		{"reserve 0", OpReserve, func(c *Command) { c.Amount = 0 }, "amount_minor", "0", amounts},
		{"reserve -1", OpReserve, func(c *Command) { c.Amount = -1 }, "amount_minor", "-1", amounts},
		{"reserve in nothing", OpReserve, func(c *Command) { c.Currency = "" }, "currency", `""`, currencies},
		{"reserve in BR", OpReserve, func(c *Command) { c.Currency = "BR" }, "currency", `"BR"`, currencies},
		{"reserve in U2D", OpReserve, func(c *Command) { c.Currency = "U2D" }, "currency", `"U2D"`, currencies},
		{"create in brl", OpCreate, func(c *Command) { c.Currency = "brl" }, "currency", `"brl"`, currencies},
		{"reserve in brl", OpReserve, func(c *Command) { c.Currency = "brl" }, "currency", `"brl"`, currencies},
		{"reserve in 1CREDIT", OpReserve, func(c *Command) { c.Currency = "1CREDIT" }, "currency", `"1CREDIT"`, currencies},
		{"reserve in CREDIT-S", OpReserve, func(c *Command) { c.Currency = "CREDIT-S" }, "currency", `"CREDIT-S"`, currencies},
		{"reserve in 13 letters", OpReserve, func(c *Command) { c.Currency = "ABCDEFGHIJKLM" }, "currency", `"ABCDEFGHIJKLM"`, currencies},
		{"ttl 0", OpReserve, func(c *Command) { c.TTL = 0 }, "ttl", "0s", "1ms up to the budget's maximum lifetime"},
		{"ttl below a millisecond", OpReserve, func(c *Command) { c.TTL = time.Microsecond }, "ttl", "0s", "1ms up to the budget's maximum lifetime"},
		{"ttl -1s", OpExtend, func(c *Command) { c.TTL = -time.Second }, "ttl", "-1s", "1ms up to the budget's maximum lifetime"},
		{"commit -1", OpCommit, func(c *Command) { c.Amount = -1 }, "amount_minor", "-1", "0 (all that is held) to 9223372036854775807 minor units"},
		{"partial commit of all", OpCommit, func(c *Command) { c.Amount, c.Partial = 0, true }, "amount_minor", "0", amounts},
		{"payment id with NUL", OpCommit, func(c *Command) { c.ID = "\x00" }, "payment_id", `"\x00"`, "no control characters"},
		{"long operation id", OpRelease, func(c *Command) { c.ID = long }, "operation_id", longValue, "128 bytes"},
		{"refund without id", OpReverse, func(c *Command) { c.ID = "" }, "refund_id", `""`, "1 to 128 bytes"},
		{"refund of 0", OpReverse, func(c *Command) { c.Amount = 0 }, "amount_minor", "0", amounts},
		{"reinstate without id", OpReinstate, func(c *Command) { c.ID = "" }, "refund_id", `""`, "1 to 128 bytes"},
		{"resolve of a fund", OpResolve, func(c *Command) { c.Target = OpFund }, "operation", "FUND", "RESERVE, COMMIT, EXTEND, RELEASE, RECLAIM, REVERSE or REINSTATE"},
		{"resolve of an expiry", OpResolve, func(c *Command) { c.Target = OpExpire }, "operation", "EXPIRE", "RESERVE, COMMIT, EXTEND, RELEASE, RECLAIM, REVERSE or REINSTATE"},
		{"resolve of a refund without id", OpResolve, func(c *Command) { c.Target, c.ID = OpReverse, "" }, "id", `""`, "1 to 128 bytes"},
		{"resolve of a reserve with id", OpResolve, func(c *Command) { c.Target = OpReserve }, "id", `"id"`, "empty for RESERVE"},
		{"fund without key", OpFund, func(c *Command) { c.ID = "" }, "idempotency_key", `""`, "1 to 128 bytes"},
		{"fund 0", OpFund, func(c *Command) { c.Amount = 0 }, "amount_minor", "0", amounts},
		{"defund in XXXX?", OpDefund, func(c *Command) { c.Currency = "XX?X" }, "currency", `"XX?X"`, currencies},
		{"257 buckets", OpCreate, func(c *Command) { c.Buckets = 257 }, "buckets", "257", "1 to 256"},
		{"-1 buckets", OpCreate, func(c *Command) { c.Buckets = -1 }, "buckets", "-1", "1 to 256"},
		{"unknown policy", OpCreate, func(c *Command) { c.Policy.LateCommit = 3 }, "policy", "3/0/0", "a known policy"},
		{"over_commit 1001 percent", OpCreate, func(c *Command) { c.Policy.OverCommit.Percent = 1001 }, "policy.over_commit.percent", "1001", "0 to 1000"},
		{"over_commit -1", OpCreate, func(c *Command) { c.Policy.OverCommit.Amount = -1 }, "policy.over_commit.amount_minor", "-1", "0 or more"},
		{"lifetime 1ms", OpCreate, func(c *Command) { c.Policy.MaxLifetime = time.Millisecond }, "policy.max_lifetime", "1ms", "1s to 9600h0m0s"},
		{"lifetime 401 days", OpCreate, func(c *Command) { c.Policy.MaxLifetime = 401 * 24 * time.Hour }, "policy.max_lifetime", "9624h0m0s", "1s to 9600h0m0s"},
		{"sink is itself", OpCreate, func(c *Command) { c.Policy.ReversalSink = c.Budget }, "policy.reversal_sink", "spring", "another budget, or empty for the unallocated bucket"},
		{"sink with a slash", OpCreate, func(c *Command) { c.Policy.ReversalSink = BudgetID{Tenant: "t1", Key: "a/b"} }, "policy.reversal_sink", "a/b", "at most one slash, between funder and key"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := good(tc.op)
			tc.edit(&c)
			c = c.Normalize()
			r := c.Validate()
			if r == nil {
				t.Fatal("it is accepted")
			}
			if r.Code != InvalidArgument || r.Field != tc.field || r.Value != tc.value || r.Limit != tc.limit {
				t.Errorf("refused with %s, field %q, value %q, limit %q; want %q, %q, %q", r.Code, r.Field, r.Value, r.Limit, tc.field, tc.value, tc.limit)
			}
			for _, part := range []string{"INVALID_ARGUMENT", tc.field, tc.value, tc.limit} {
				if !strings.Contains(r.Error(), part) {
					t.Errorf("the error %q does not name %q", r, part)
				}
			}
		})
	}
}

// Another tenant's budget as a sink is answered as one that does not exist.
func TestForeignSink(t *testing.T) {
	c := good(OpCreate)
	c.Policy.ReversalSink = BudgetID{Tenant: "t2", Key: "sink"}
	r := c.Validate()
	if r == nil || r.Code != BudgetNotFound || strings.Contains(r.Error(), "t2") {
		t.Errorf("%v", r)
	}
}

func TestEdgesPass(t *testing.T) {
	for _, edit := range []func(c *Command){
		func(c *Command) { c.Key.Order = strings.Repeat("x", 128) },
		func(c *Command) { c.Key.Order = "ação/1 #\u200b" },
		func(c *Command) { c.Amount = 1<<63 - 1 },
		func(c *Command) { c.TTL = time.Millisecond },
		func(c *Command) { c.Currency = "CREDIT_2" },
		func(c *Command) { c.Currency = "JPY" },
		func(c *Command) { c.Currency = "XAF" },
		func(c *Command) { c.Currency = "BGN" }, // withdrawn: a budget that has it goes on
		func(c *Command) { c.Budget.Funder = "brand" },
	} {
		c := good(OpReserve)
		edit(&c)
		if r := c.Validate(); r != nil {
			t.Error(r)
		}
	}
}

func TestNames(t *testing.T) {
	for _, b := range []BudgetID{{"t", "", "k"}, {"t", "f", "k"}} {
		if got := ParseBudget("t", b.String()); got != b {
			t.Errorf("%v is written %s and read as %v", b, b, got)
		}
	}
	id := BudgetID{Tenant: "t", Funder: "f", Key: "k"}
	if s := (BucketID{id, 3}).String(); s != "f/k#3" {
		t.Error(s)
	}
	if s := (BucketID{id, Unallocated}).String(); s != "f/k#unallocated" {
		t.Error(s)
	}
	// By ISO 4217, which counts cents where people do not (COP, IDR).
	for c, want := range map[string]int{"BRL": 2, "JPY": 0, "KWD": 3, "COP": 2, "IDR": 2, "IQD": 3, "MRU": 2, "CLF": 4, "BGN": 2, "CREDIT": 0, "": 0} {
		if got := Digits(c); got != want {
			t.Errorf("%q has %d digits, want %d", c, got, want)
		}
	}
	for _, s := range []string{Op(99).String(), EntryType(99).String(), State(99).String()} {
		if s != "UNKNOWN" {
			t.Error(s)
		}
	}
}
