package main

import (
	"context"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	cofferv1 "github.com/coffer-ledger/coffer/proto/gen/coffer/v1"
)

type queueLease struct {
	Queue  string        `arg:"" help:"Name of the queue."`
	Max    uint32        `help:"Most jobs taken." default:"1" range:"1 to 100"`
	For    time.Duration `help:"How long the lease holds." default:"30s" range:"100ms to 1h"`
	Worker string        `help:"Who works, for people." default:"coffer-cli"`
}

// Help is the long help.
func (queueLease) Help() string {
	return `Each job comes with a token, which complete, fail and return ask for. A lease
that runs out returns the job and counts an attempt.

Example:
  coffer queue lease mail --max 10 --for 5m --worker w-1`
}

// Run leases.
func (q *queueLease) Run(c *cli) error {
	jobs, err := onServer(c, func(ctx context.Context, s *server) ([]*cofferv1.QueueJob, error) {
		return s.Client.Lease(ctx, &cofferv1.LeaseRequest{Queue: q.Queue, MaxJobs: q.Max, Lease: durationpb.New(q.For), Worker: q.Worker})
	})
	if err != nil {
		return err
	}
	if c.JSON {
		return c.printMessage(&cofferv1.LeaseResponse{Jobs: jobs})
	}
	return c.jobList(jobs, "", "no job is due")
}

type changedJob interface {
	proto.Message
	GetJob() *cofferv1.QueueJob
	GetReplayed() bool
}

// changeJob runs one command on a job and prints the job.
func changeJob[T changedJob](c *cli, call func(ctx context.Context, s *server) (T, error)) error {
	res, err := onServer(c, call)
	if err != nil {
		return err
	}
	return c.job(res, res.GetJob(), res.GetReplayed())
}

type queueComplete struct {
	leaseName `embed:""`
}

// Help is the long help.
func (queueComplete) Help() string {
	return "Example:\n  coffer queue complete mail welcome-17 --token TOKEN"
}

// Run completes.
func (q *queueComplete) Run(c *cli) error {
	return changeJob(c, func(ctx context.Context, s *server) (*cofferv1.CompleteResponse, error) {
		return s.Complete(ctx, &cofferv1.CompleteRequest{Queue: q.Queue, JobId: q.Job, LeaseToken: q.Token})
	})
}

type queueFail struct {
	leaseName `embed:""`
	Error     string `help:"What went wrong." required:"" placeholder:"TEXT"`
	Permanent bool   `help:"Trying again is pointless: make it a dead letter at once."`
}

// Help is the long help.
func (queueFail) Help() string {
	return `The job is due again after a delay that doubles with each attempt. After its last
attempt it is a dead letter, which only a person takes up (coffer queue dead).

Example:
  coffer queue fail mail welcome-17 --token TOKEN --error 'no route to host'`
}

// Run fails.
func (q *queueFail) Run(c *cli) error {
	return changeJob(c, func(ctx context.Context, s *server) (*cofferv1.FailResponse, error) {
		return s.Fail(ctx, &cofferv1.FailRequest{Queue: q.Queue, JobId: q.Job, LeaseToken: q.Token, Error: q.Error, Permanent: q.Permanent})
	})
}

type queueReturn struct {
	leaseName `embed:""`
}

// Help is the long help.
func (queueReturn) Help() string {
	return `No attempt is counted, and the job is due at once.

Example:
  coffer queue return mail welcome-17 --token TOKEN`
}

// Run returns.
func (q *queueReturn) Run(c *cli) error {
	return changeJob(c, func(ctx context.Context, s *server) (*cofferv1.ReturnLeaseResponse, error) {
		return s.ReturnLease(ctx, &cofferv1.ReturnLeaseRequest{Queue: q.Queue, JobId: q.Job, LeaseToken: q.Token})
	})
}

type queueDead struct {
	List    deadList    `cmd:"" help:"List a queue's dead letters, the oldest first."`
	Get     deadGet     `cmd:"" help:"Show a dead letter."`
	Replay  deadReplay  `cmd:"" help:"Make a dead letter a job again, under the same id."`
	Discard deadDiscard `cmd:"" help:"Give a dead letter up."`
}

type deadList struct {
	Queue string `arg:"" help:"Name of the queue."`
	paged `embed:""`
}

// Help is the long help.
func (deadList) Help() string { return "Example:\n  coffer queue dead list mail" }

// Run lists.
func (d *deadList) Run(c *cli) error {
	res, err := onServer(c, func(ctx context.Context, s *server) (*cofferv1.ListDeadLettersResponse, error) {
		return s.ListDeadLetters(ctx, &cofferv1.ListDeadLettersRequest{Queue: d.Queue, PageSize: int32(d.Limit), PageToken: d.Page})
	})
	if err != nil {
		return err
	}
	if c.JSON {
		return c.printMessage(res)
	}
	return c.jobList(res.GetJobs(), res.GetNextPageToken(), "no dead letters")
}

type deadGet struct{ queueGet }

// Help is the long help.
func (deadGet) Help() string { return "Example:\n  coffer queue dead get mail welcome-17" }

type deadReplay struct {
	jobName `embed:""`
}

// Help is the long help.
func (deadReplay) Help() string {
	return `The job has all its attempts again. What its work did before is not done twice,
where the work is made of Coffer's commands: they take effect once.

Example:
  coffer queue dead replay mail welcome-17`
}

// Run replays.
func (d *deadReplay) Run(c *cli) error {
	return changeJob(c, func(ctx context.Context, s *server) (*cofferv1.ReplayDeadLetterResponse, error) {
		return s.ReplayDeadLetter(ctx, d.Queue, d.Job)
	})
}

type deadDiscard struct {
	jobName `embed:""`
	Reason  string `help:"Why; it is kept with the job." required:"" placeholder:"TEXT"`
}

// Help is the long help.
func (deadDiscard) Help() string {
	return "Example:\n  coffer queue dead discard mail welcome-17 --reason 'the customer has left'"
}

// Run discards.
func (d *deadDiscard) Run(c *cli) error {
	return changeJob(c, func(ctx context.Context, s *server) (*cofferv1.DiscardDeadLetterResponse, error) {
		return s.DiscardDeadLetter(ctx, d.Queue, d.Job, d.Reason)
	})
}
