package rpc

import (
	"context"
	"fmt"

	"connectrpc.com/connect/v2"

	"github.com/coffer-ledger/coffer/ledger"
)

// TenantHeader names the tenant of a call.
const TenantHeader = "Coffer-Tenant"

type tenantKey struct{}

// tenantOf is the tenant of the call; withTenant put it there.
func tenantOf(ctx context.Context) string {
	t, _ := ctx.Value(tenantKey{}).(string)
	return t
}

// withTenant is ctx of a call that acts for a tenant, whom its span names, too.
func withTenant(ctx context.Context, tenant string) context.Context {
	markTenant(ctx, tenant)
	return context.WithValue(ctx, tenantKey{}, tenant)
}

// tenantInterceptor reads and checks the tenant header before any payload is
// read.
func tenantInterceptor(fallback string) connect.ServerInterceptor {
	return func(next connect.ServerFunc) connect.ServerFunc {
		return func(ctx context.Context, spec connect.Spec, stream connect.ServerStream) error {
			tenant := fallback
			if info, ok := connect.CallInfoForServerContext(ctx); ok {
				var r *ledger.Rejection
				if tenant, r = tenantFrom(info.RequestHeader().Values(TenantHeader), fallback); r != nil {
					return r
				}
			}
			return next(withTenant(ctx, tenant), spec, stream)
		}
	}
}

func tenantFrom(values []string, fallback string) (string, *ledger.Rejection) {
	switch {
	case len(values) > 1:
		return "", &ledger.Rejection{
			Code: ledger.InvalidArgument, Field: TenantHeader, Value: fmt.Sprintf("%.80q", values),
			Limit: "one tenant", Message: "is given more than once",
		}
	case len(values) == 1:
		if r := checkTenant(values[0]); r != nil {
			r.Field = TenantHeader
			return "", r
		}
		return values[0], nil
	case fallback == "":
		return "", &ledger.Rejection{
			Code: ledger.InvalidArgument, Field: TenantHeader, Value: `""`,
			Limit: "1 to 128 bytes", Message: "must be sent as a header",
		}
	}
	return fallback, nil
}
