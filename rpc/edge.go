package rpc

import (
	"context"
	"fmt"
	"runtime/debug"

	"connectrpc.com/connect/v2"
)

// panicError is a panic of a handler, with the stack it happened on.
type panicError struct {
	value any
	stack []byte
}

func (e *panicError) Error() string { return fmt.Sprintf("panic: %v", e.value) }

// edgeInterceptor is the only place where errors become wire errors. A panic
// fails its own call and nothing else.
func edgeInterceptor(next connect.ServerFunc) connect.ServerFunc {
	return func(ctx context.Context, spec connect.Spec, stream connect.ServerStream) (err error) {
		defer func() {
			if v := recover(); v != nil {
				err = &panicError{value: v, stack: debug.Stack()}
			}
			if err != nil {
				err = wireError(ctx, err)
			}
		}()
		return next(ctx, spec, stream)
	}
}
