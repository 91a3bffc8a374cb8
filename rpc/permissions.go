package rpc

import (
	"github.com/coffer-ledger/coffer/proto/gen/coffer/v1/cofferv1connect"
	"github.com/coffer-ledger/coffer/rpc/access"
)

// permission says who may call a procedure.
type permission struct {
	// roles are those who may, beside operators.
	roles access.Roles
	// everywhere: the procedure is about all tenants, so a token for one of
	// them does not do.
	everywhere bool
}

// Short names for the rows.
const (
	programs   = access.Service
	readers    = access.Service | access.Auditor
	auditors   = access.Auditor
	watchers   = access.Auditor | access.Monitor
	nobodyElse = access.Roles(0)
)

// permissions has a row for every procedure; one without a row may be called by
// nobody. The rows follow these rules:
//
//   - An operator may call everything: whoever may create money by funding a
//     budget gains nothing by the orders that spend it, and a person who settles
//     a case needs both. So no row names operators.
//   - A service does what orders, customers, queues and facts need while nobody
//     looks: it moves what a budget has, and never the budget itself. A wallet is
//     a customer's and made and filled by the program that sells credits.
//   - What is left to a person is an operator's: dead letters, facts that are
//     exceptions, sinks (they name addresses, and give out their secrets).
//   - An auditor reads all that there is, and changes nothing.
//   - A monitor sees how the nodes are, and no tenant's data.
//
// There is no role for approvals, since nothing needs one yet.
var permissions = map[string]permission{
	cofferv1connect.BudgetServiceCreateBudgetProcedure:   {nobodyElse, false},
	cofferv1connect.BudgetServiceGetBudgetProcedure:      {readers, false},
	cofferv1connect.BudgetServiceListBudgetsProcedure:    {readers, false},
	cofferv1connect.BudgetServiceFundBudgetProcedure:     {nobodyElse, false},
	cofferv1connect.BudgetServiceDefundBudgetProcedure:   {nobodyElse, false},
	cofferv1connect.BudgetServiceFreezeBudgetProcedure:   {nobodyElse, false},
	cofferv1connect.BudgetServiceUnfreezeBudgetProcedure: {nobodyElse, false},
	cofferv1connect.BudgetServiceCloseBudgetProcedure:    {nobodyElse, false},
	cofferv1connect.BudgetServiceReshardBudgetProcedure:  {nobodyElse, false},
	cofferv1connect.BudgetServiceGetBucketsProcedure:     {auditors, false},

	cofferv1connect.ReservationServiceReserveProcedure:        {programs, false},
	cofferv1connect.ReservationServiceCommitProcedure:         {programs, false},
	cofferv1connect.ReservationServiceExtendProcedure:         {programs, false},
	cofferv1connect.ReservationServiceReleaseProcedure:        {programs, false},
	cofferv1connect.ReservationServiceReclaimProcedure:        {programs, false},
	cofferv1connect.ReservationServiceReverseProcedure:        {programs, false},
	cofferv1connect.ReservationServiceReinstateProcedure:      {programs, false},
	cofferv1connect.ReservationServiceResolveProcedure:        {programs, false},
	cofferv1connect.ReservationServiceGetReservationProcedure: {readers, false},
	cofferv1connect.ReservationServiceExecuteProcedure:        {programs, false},

	cofferv1connect.CreditServiceCreateWalletProcedure: {programs, false},
	cofferv1connect.CreditServiceGrantProcedure:        {programs, false},
	cofferv1connect.CreditServiceGetWalletProcedure:    {readers, false},
	cofferv1connect.CreditServiceListWalletsProcedure:  {readers, false},
	cofferv1connect.CreditServiceStatementProcedure:    {readers, false},
	cofferv1connect.CreditServiceChargeProcedure:       {programs, false},
	cofferv1connect.CreditServiceRefundProcedure:       {programs, false},
	cofferv1connect.CreditServiceReclaimProcedure:      {programs, false},
	cofferv1connect.CreditServiceHoldProcedure:         {programs, false},
	cofferv1connect.CreditServiceSettleProcedure:       {programs, false},
	cofferv1connect.CreditServiceReleaseHoldProcedure:  {programs, false},
	cofferv1connect.CreditServiceGetJobProcedure:       {readers, false},

	cofferv1connect.QueueServiceEnqueueProcedure:           {programs, false},
	cofferv1connect.QueueServiceLeaseProcedure:             {programs, false},
	cofferv1connect.QueueServiceWorkProcedure:              {programs, false},
	cofferv1connect.QueueServiceExtendLeaseProcedure:       {programs, false},
	cofferv1connect.QueueServiceCompleteProcedure:          {programs, false},
	cofferv1connect.QueueServiceFailProcedure:              {programs, false},
	cofferv1connect.QueueServiceReturnLeaseProcedure:       {programs, false},
	cofferv1connect.QueueServiceGetQueueJobProcedure:       {readers, false},
	cofferv1connect.QueueServiceListJobsProcedure:          {readers, false},
	cofferv1connect.QueueServiceListQueuesProcedure:        {readers, false},
	cofferv1connect.QueueServiceListDeadLettersProcedure:   {readers, false},
	cofferv1connect.QueueServiceReplayDeadLetterProcedure:  {nobodyElse, false},
	cofferv1connect.QueueServiceDiscardDeadLetterProcedure: {nobodyElse, false},

	cofferv1connect.FactServiceSubmitFactsProcedure: {programs, false},
	cofferv1connect.FactServiceGetFactProcedure:     {readers, false},
	cofferv1connect.FactServiceListFactsProcedure:   {readers, false},
	cofferv1connect.FactServiceRetryFactProcedure:   {nobodyElse, false},
	cofferv1connect.FactServiceResolveFactProcedure: {nobodyElse, false},

	cofferv1connect.EventServiceSubscribeProcedure: {readers, false},

	cofferv1connect.SinkServiceCreateSinkProcedure:  {nobodyElse, false},
	cofferv1connect.SinkServiceUpdateSinkProcedure:  {nobodyElse, false},
	cofferv1connect.SinkServiceGetSinkProcedure:     {auditors, false},
	cofferv1connect.SinkServiceListSinksProcedure:   {auditors, false},
	cofferv1connect.SinkServicePauseSinkProcedure:   {nobodyElse, false},
	cofferv1connect.SinkServiceResumeSinkProcedure:  {nobodyElse, false},
	cofferv1connect.SinkServiceRewindSinkProcedure:  {nobodyElse, false},
	cofferv1connect.SinkServicePingSinkProcedure:    {nobodyElse, false},
	cofferv1connect.SinkServiceDeleteSinkProcedure:  {nobodyElse, false},
	cofferv1connect.SinkServiceListParkedProcedure:  {auditors, false},
	cofferv1connect.SinkServiceGetParkedProcedure:   {auditors, false},
	cofferv1connect.SinkServiceRetryParkedProcedure: {nobodyElse, false},
	cofferv1connect.SinkServiceSkipParkedProcedure:  {nobodyElse, false},
	cofferv1connect.SinkServiceListSkippedProcedure: {auditors, false},

	cofferv1connect.LedgerServiceListEntriesProcedure:  {auditors, false},
	cofferv1connect.LedgerServiceReplayProcedure:       {auditors, false},
	cofferv1connect.LedgerServiceExplainOrderProcedure: {readers, false},
	cofferv1connect.LedgerServiceVerifyChainProcedure:  {auditors, false},
	cofferv1connect.LedgerServiceListCasesProcedure:    {auditors, false},

	cofferv1connect.OperatorServiceAuditProcedure:         {auditors, true},
	cofferv1connect.OperatorServiceRebuildExpiryProcedure: {nobodyElse, true},
	cofferv1connect.OperatorServiceGetStatusProcedure:     {watchers, true},
	cofferv1connect.OperatorServiceGetClusterProcedure:    {watchers, true},
	cofferv1connect.OperatorServiceDrainNodeProcedure:     {nobodyElse, true},
}

// metricsPermission is for what a node shows of itself beside the API: metrics,
// and profiles where they are on.
var metricsPermission = permission{watchers, true}

// reflectionPermission is for the schema, which needs a token and no role.
var reflectionPermission = permission{access.Any, false}
