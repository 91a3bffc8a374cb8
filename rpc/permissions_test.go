package rpc

import (
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect/v2"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/coffer-ledger/coffer/proto/gen/coffer/v1/cofferv1connect"
	"github.com/coffer-ledger/coffer/rpc/access"
)

// allowedRoles is who may call what, beside operators, in words of its own.
const allowedRoles = `
BudgetService GetBudget service auditor
BudgetService ListBudgets service auditor
BudgetService GetBuckets auditor
ReservationService Reserve service
ReservationService Commit service
ReservationService Extend service
ReservationService Release service
ReservationService Reclaim service
ReservationService Reverse service
ReservationService Reinstate service
ReservationService Resolve service
ReservationService GetReservation service auditor
ReservationService Execute service
CreditService CreateWallet service
CreditService Grant service
CreditService GetWallet service auditor
CreditService ListWallets service auditor
CreditService Statement service auditor
CreditService Charge service
CreditService Refund service
CreditService Reclaim service
CreditService Hold service
CreditService Settle service
CreditService ReleaseHold service
CreditService GetJob service auditor
QueueService Enqueue service
QueueService Lease service
QueueService Work service
QueueService ExtendLease service
QueueService Complete service
QueueService Fail service
QueueService ReturnLease service
QueueService GetQueueJob service auditor
QueueService ListJobs service auditor
QueueService ListQueues service auditor
QueueService ListDeadLetters service auditor
FactService SubmitFacts service
FactService GetFact service auditor
FactService ListFacts service auditor
EventService Subscribe service auditor
SinkService GetSink auditor
SinkService ListSinks auditor
SinkService ListParked auditor
SinkService GetParked auditor
SinkService ListSkipped auditor
LedgerService ListEntries auditor
LedgerService Replay auditor
LedgerService ExplainOrder service auditor
LedgerService VerifyChain auditor
LedgerService ListCases auditor
OperatorService Audit auditor
OperatorService GetStatus auditor monitor
OperatorService GetCluster auditor monitor
`

// callersProcedures are those of the schema, but for what nodes call.
func callersProcedures() (out []string) {
	protoregistry.GlobalFiles.RangeFilesByPackage("coffer.v1", func(f protoreflect.FileDescriptor) bool {
		for i := range f.Services().Len() {
			s := f.Services().Get(i)
			for j := range s.Methods().Len() {
				if string(s.FullName()) != cofferv1connect.ClusterServiceName {
					out = append(out, "/"+string(s.FullName())+"/"+string(s.Methods().Get(j).Name()))
				}
			}
		}
		return true
	})
	return out
}

// Every procedure has a row, and every row a procedure.
func TestEveryProcedureHasARow(t *testing.T) {
	all := callersProcedures()
	for _, p := range all {
		if _, ok := permissions[p]; !ok {
			t.Errorf("%s has no row in permissions: decide who may call it", p)
		}
	}
	if len(all) < 75 || len(permissions) != len(all) {
		t.Errorf("%d rows for %d procedures", len(permissions), len(all))
	}
	services := map[string]bool{}
	for _, p := range all {
		services[strings.Split(p, "/")[1]] = true
	}
	server, err := NewServer(DefaultConfig(), allServices(&ring{t: t}))
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for spec := range server.rpc.Specs() {
		n++
		if _, ok := permissions[spec.Procedure]; !ok {
			t.Errorf("%s is served and has no row", spec.Procedure)
		}
	}
	if n != len(all) {
		t.Errorf("%d of %d procedures are served", n, len(all))
	}
}

// anySinks is named, since a method has the interface's name.
type anySinks struct{ sinksAlias }

type sinksAlias interface{ Sinks }

// allServices is a server of every service, whose calls come to nothing.
func allServices(r *ring) Deps {
	return Deps{
		Executor: &fakeExec{}, Reader: &fakeStore{}, Maintainer: &fakeStore{}, Status: func(context.Context) Status { return Status{} },
		Queue: struct{ Queue }{}, Facts: struct{ Facts }{}, FactLists: struct{ FactLists }{},
		Events: struct{ Events }{}, EventSignals: struct{ EventSignals }{}, Sinks: anySinks{}, SinkDrivers: struct{ SinkDrivers }{},
		Tokens: r.tokens,
	}
}

// deaf is a stream without a message.
type deaf struct{}

func (deaf) Receive(any) error  { return io.EOF }
func (deaf) SendHeaders() error { return nil }
func (deaf) Send(any) error     { return nil }

// Each role may call what the list says and nothing else; what is about all
// tenants takes a token for all.
func TestRoles(t *testing.T) {
	allowed := map[string]bool{}
	for line := range strings.Lines(strings.TrimSpace(allowedRoles)) {
		words := strings.Fields(line)
		for _, role := range words[2:] {
			allowed["/coffer.v1."+words[0]+"/"+words[1]+" "+role] = true
		}
	}
	r := &ring{t: t}
	tokens := map[string]string{}
	for role, set := range map[string]access.Roles{"service": access.Service, "operator": access.Operator, "auditor": access.Auditor, "monitor": access.Monitor} {
		tokens[role+" *"], tokens[role+" shop"] = r.add(role+"-all", "*", set, time.Time{}), r.add(role+"-shop", "shop", set, time.Time{})
	}
	s, err := NewServer(DefaultConfig(), allServices(r))
	if err != nil {
		t.Fatal(err)
	}
	for _, procedure := range callersProcedures() {
		for who, token := range tokens {
			role, tenant, _ := strings.Cut(who, " ")
			info := &connect.CallInfo{}
			info.RequestHeader().Set("Authorization", "Bearer "+token)
			err := s.rpc.Call(t.Context(), procedure, info, deaf{})
			may := role == "operator" || allowed[procedure+" "+role]
			if tenant != "*" && strings.HasPrefix(procedure, "/coffer.v1.OperatorService/") {
				may = false
			}
			if code := connect.CodeOf(err); err == nil || (code == connect.CodePermissionDenied) == may || code == connect.CodeUnauthenticated {
				t.Errorf("%s of tenant %s calls %s: %v, allowed %v", role, tenant, procedure, err, may)
			}
		}
		for _, none := range []*connect.CallInfo{nil, {}} {
			if err := s.rpc.Call(t.Context(), procedure, none, deaf{}); connect.CodeOf(err) != connect.CodeUnauthenticated {
				t.Errorf("nobody calls %s: %v", procedure, err)
			}
		}
	}
}
