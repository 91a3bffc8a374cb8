package rpc

import (
	"context"

	cofferv1 "github.com/coffer-ledger/coffer/proto/gen/coffer/v1"
	"github.com/coffer-ledger/coffer/proto/gen/coffer/v1/cofferv1connect"
)

// Credits is the generated client of CreditService.
func (c *Client) Credits() cofferv1connect.CreditServiceClient { return c.credits }

// CreateWallet makes an empty wallet.
func (c *Client) CreateWallet(ctx context.Context, req *cofferv1.CreateWalletRequest) (*cofferv1.CreateWalletResponse, error) {
	return call(ctx, c, kindCommand, c.credits.CreateWallet, req)
}

// Grant adds credits to a wallet.
func (c *Client) Grant(ctx context.Context, req *cofferv1.GrantRequest) (*cofferv1.GrantResponse, error) {
	return call(ctx, c, kindCommand, c.credits.Grant, req)
}

// GetWallet reads a wallet.
func (c *Client) GetWallet(ctx context.Context, wallet string) (*cofferv1.Wallet, error) {
	res, err := call(ctx, c, kindRead, c.credits.GetWallet, &cofferv1.GetWalletRequest{Wallet: wallet})
	if err != nil {
		return nil, err
	}
	return res.GetWallet(), nil
}

// ListWallets lists wallets by name.
func (c *Client) ListWallets(ctx context.Context, req *cofferv1.ListWalletsRequest) (*cofferv1.ListWalletsResponse, error) {
	return call(ctx, c, kindRead, c.credits.ListWallets, req)
}

// Statement reads a page of a wallet's account.
func (c *Client) Statement(ctx context.Context, req *cofferv1.StatementRequest) (*cofferv1.StatementResponse, error) {
	return call(ctx, c, kindRead, c.credits.Statement, req)
}

// Charge takes a job's cost from a wallet.
func (c *Client) Charge(ctx context.Context, req *cofferv1.ChargeRequest) (*cofferv1.Outcome, error) {
	return command(ctx, c, &cofferv1.Command{Command: &cofferv1.Command_Charge{Charge: req}}, c.credits.Charge, req)
}

// Refund is for every failure of a job: it gives back what was charged.
func (c *Client) Refund(ctx context.Context, req *cofferv1.RefundRequest) (*cofferv1.Outcome, error) {
	return command(ctx, c, &cofferv1.Command{Command: &cofferv1.Command_Refund{Refund: req}}, c.credits.Refund, req)
}

// ReclaimCharge is for every success of a job: it takes a refund back.
func (c *Client) ReclaimCharge(ctx context.Context, req *cofferv1.CreditServiceReclaimRequest) (*cofferv1.Outcome, error) {
	return command(ctx, c, &cofferv1.Command{Command: &cofferv1.Command_ReclaimCharge{ReclaimCharge: req}}, c.credits.Reclaim, req)
}

// Hold keeps an estimate of a job's cost.
func (c *Client) Hold(ctx context.Context, req *cofferv1.HoldRequest) (*cofferv1.Outcome, error) {
	return command(ctx, c, &cofferv1.Command{Command: &cofferv1.Command_Hold{Hold: req}}, c.credits.Hold, req)
}

// Settle charges a job's actual cost.
func (c *Client) Settle(ctx context.Context, req *cofferv1.SettleRequest) (*cofferv1.Outcome, error) {
	return command(ctx, c, &cofferv1.Command{Command: &cofferv1.Command_Settle{Settle: req}}, c.credits.Settle, req)
}

// ReleaseHold gives a job's hold back; before its charge it leaves a tombstone.
func (c *Client) ReleaseHold(ctx context.Context, req *cofferv1.ReleaseHoldRequest) (*cofferv1.Outcome, error) {
	return command(ctx, c, &cofferv1.Command{Command: &cofferv1.Command_ReleaseHold{ReleaseHold: req}}, c.credits.ReleaseHold, req)
}

// GetJob reads all attempts at a job, and what happened.
func (c *Client) GetJob(ctx context.Context, job string) (*cofferv1.GetJobResponse, error) {
	return call(ctx, c, kindRead, c.credits.GetJob, &cofferv1.GetJobRequest{JobId: job})
}
