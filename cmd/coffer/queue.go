package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/jedib0t/go-pretty/v6/table"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/coffer-ledger/coffer/ledger/work"
	cofferv1 "github.com/coffer-ledger/coffer/proto/gen/coffer/v1"
)

type queueCmd struct {
	remote `embed:""`

	Enqueue  queueEnqueue  `cmd:"" help:"Put a job into a queue."`
	Stats    queueStats    `cmd:"" help:"List the queues, with how many jobs each has in each state."`
	List     queueList     `cmd:"" help:"List a queue's jobs."`
	Get      queueGet      `cmd:"" help:"Show a job."`
	Lease    queueLease    `cmd:"" help:"Take jobs that are due, as a worker does."`
	Complete queueComplete `cmd:"" help:"End a leased job for good."`
	Fail     queueFail     `cmd:"" help:"Count an attempt of a leased job; it comes again."`
	Return   queueReturn   `cmd:"" help:"Give a leased job back untried."`
	Dead     queueDead     `cmd:"" help:"Dead letters: jobs that failed too often."`
}

// jobName names a job.
type jobName struct {
	Queue string `arg:"" help:"Name of the queue."`
	Job   string `arg:"" help:"Job id."`
}

// leaseName names a lease.
type leaseName struct {
	jobName `embed:""`
	Token   string `help:"Token that the lease came with." required:"" placeholder:"TOKEN"`
}

type queueEnqueue struct {
	jobName     `embed:""`
	Payload     string        `help:"Payload of the job." xor:"payload" placeholder:"TEXT"`
	File        string        `help:"File that holds the payload; - is the standard input." xor:"payload" placeholder:"FILE"`
	MaxAttempts uint32        `help:"Attempts that may end without success." default:"10" range:"1 to 1000"`
	BackoffBase time.Duration `help:"Wait after the first attempt; it doubles." default:"1s" range:"1ms to 24h"`
	BackoffMax  time.Duration `help:"Longest wait between two attempts." default:"5m" range:"1ms to 24h"`
	Keep        time.Duration `help:"How long the finished job is remembered." default:"168h" range:"1m to 2160h"`
	Delay       time.Duration `help:"Not due before this has passed." default:"0s" range:"0s to 720h"`
	traced      `embed:""`
}

// Help is the long help.
func (queueEnqueue) Help() string {
	return `The job id is the key: the same job again is answered with its state now, other
values under the same id are refused.

Examples:
  coffer queue enqueue mail welcome-17 --payload '{"to":"c-17"}'
  coffer queue enqueue mail welcome-17 --file job.json --max-attempts 5 --delay 10m`
}

// Run enqueues.
func (q *queueEnqueue) Run(c *cli) error {
	payload, err := q.payload()
	if err != nil {
		return err
	}
	res, err := onServer(c, func(ctx context.Context, s *server) ([]*cofferv1.EnqueueResult, error) {
		return s.Enqueue(ctx, q.Queue, &cofferv1.NewJob{
			JobId: q.Job, Payload: payload, Delay: durationpb.New(q.Delay), CorrelationId: q.Correlation,
			Policy: &cofferv1.JobPolicy{
				MaxAttempts: q.MaxAttempts, BackoffBase: durationpb.New(q.BackoffBase), BackoffMax: durationpb.New(q.BackoffMax), Keep: durationpb.New(q.Keep),
			},
		})
	})
	if err != nil {
		return err
	}
	if d := res[0].GetError(); d != nil {
		return c.inFlags(refusedItem{d}, d)
	}
	return c.job(res[0], res[0].GetJob(), res[0].GetReplayed())
}

// payload reads what the flags name, and never more than a job may carry.
func (q *queueEnqueue) payload() ([]byte, error) {
	if q.File == "" {
		return []byte(q.Payload), nil
	}
	in := os.Stdin
	if q.File != "-" {
		f, err := os.Open(q.File)
		if err != nil {
			return nil, fmt.Errorf("read payload: %w", err)
		}
		defer f.Close() //nolint:errcheck // read only
		in = f
	}
	b, err := io.ReadAll(io.LimitReader(in, work.MaxPayload+1))
	if err != nil {
		return nil, fmt.Errorf("read payload: %w", err)
	}
	if len(b) > work.MaxPayload {
		return nil, fmt.Errorf("the payload in %s is larger than %d bytes; put it elsewhere and enqueue where it is", q.File, work.MaxPayload)
	}
	return b, nil
}

// refusedItem is the refusal of the one item of a batch of one.
type refusedItem struct{ detail *cofferv1.ErrorDetail }

func (e refusedItem) Error() string {
	d := e.detail
	return d.GetReason() + ": " + sentence(d, d.GetField()) + "; " + d.GetNext()
}

// job prints one job; answer is the message that it came in.
func (c *cli) job(answer proto.Message, j *cofferv1.QueueJob, replayed bool) error {
	if c.JSON {
		return c.printMessage(answer)
	}
	if replayed {
		c.printf("done before; this is the job now\n\n")
	}
	c.jobTable([]*cofferv1.QueueJob{j})
	return nil
}

func jobState(s cofferv1.QueueJobState) string { return shortEnum(s, "QUEUE_JOB_STATE_") }

func (c *cli) jobTable(jobs []*cofferv1.QueueJob) {
	t := c.table(table.Row{"queue", "job", "state", "attempts", "of", "due", "worker", "token", "last error", "reason", "bytes"}, "attempts", "of", "bytes")
	for _, j := range jobs {
		due := clock(j.GetDueTime())
		if s := j.GetState(); s != cofferv1.QueueJobState_QUEUE_JOB_STATE_READY && s != cofferv1.QueueJobState_QUEUE_JOB_STATE_LEASED {
			due = ""
		}
		t.row(j.GetQueue(), j.GetJobId(), jobState(j.GetState()), j.GetAttempt(), j.GetPolicy().GetMaxAttempts(), due, j.GetWorker(), j.GetLeaseToken(),
			oneLine(j.GetLastError()), oneLine(j.GetDiscardReason()), len(j.GetPayload()))
	}
	t.print()
}

// oneLine shortens a text for a table.
func oneLine(s string) string {
	for i, r := range s {
		if r == '\n' || i >= 60 {
			return s[:i] + "…"
		}
	}
	return s
}

type queueStats struct{}

// Help is the long help.
func (queueStats) Help() string { return "Example:\n  coffer queue stats" }

// Run shows figures.
func (q *queueStats) Run(c *cli) error {
	queues, err := onServer(c, func(_ context.Context, s *server) ([]*cofferv1.QueueStats, error) {
		var all []*cofferv1.QueueStats
		req := &cofferv1.ListQueuesRequest{PageSize: 1000}
		for {
			ctx, cancel := c.call() // each page has its own time
			res, err := s.ListQueues(ctx, req)
			cancel()
			if err != nil {
				return nil, err
			}
			all = append(all, res.GetQueues()...)
			if req.PageToken = res.GetNextPageToken(); req.PageToken == "" {
				return all, nil
			}
		}
	})
	if err != nil {
		return err
	}
	if c.JSON {
		return c.printMessage(&cofferv1.ListQueuesResponse{Queues: queues})
	}
	if len(queues) == 0 {
		c.printf("no queues\n")
		return nil
	}
	t := c.table(table.Row{"queue", "ready", "leased", "dead", "done", "discarded", "oldest due"}, "ready", "leased", "dead", "done", "discarded")
	for _, q := range queues {
		t.row(q.GetQueue(), q.GetReady(), q.GetLeased(), q.GetDead(), q.GetDone(), q.GetDiscarded(), clock(q.GetOldestDueTime()))
	}
	t.print()
	return nil
}

type queueList struct {
	Queue string `arg:"" help:"Name of the queue."`
	State string `help:"Only jobs in this state: ready, leased, done, dead, discarded, or all (default: all)." enum:"ready,leased,done,dead,discarded,all" default:"all" placeholder:"STATE"`
	paged `embed:""`
}

// Help is the long help.
func (queueList) Help() string {
	return "Examples:\n  coffer queue list mail\n  coffer queue list mail --state leased"
}

// Run lists.
func (q *queueList) Run(c *cli) error {
	res, err := onServer(c, func(ctx context.Context, s *server) (*cofferv1.ListJobsResponse, error) {
		return s.ListJobs(ctx, &cofferv1.ListJobsRequest{
			Queue: q.Queue, State: cofferv1.QueueJobState(cofferv1.QueueJobState_value["QUEUE_JOB_STATE_"+enumName(q.State)]), PageSize: int32(q.Limit), PageToken: q.Page,
		})
	})
	if err != nil {
		return err
	}
	if c.JSON {
		return c.printMessage(res)
	}
	return c.jobList(res.GetJobs(), res.GetNextPageToken(), "no jobs")
}

func (c *cli) jobList(jobs []*cofferv1.QueueJob, next, none string) error {
	if len(jobs) == 0 {
		c.printf("%s\n", none)
	} else {
		c.jobTable(jobs)
	}
	c.more(next)
	return nil
}

type queueGet struct {
	jobName `embed:""`
}

// Help is the long help.
func (queueGet) Help() string { return "Example:\n  coffer queue get mail welcome-17" }

// Run shows a job.
func (q *queueGet) Run(c *cli) error {
	j, err := onServer(c, func(ctx context.Context, s *server) (*cofferv1.QueueJob, error) {
		return s.GetQueueJob(ctx, q.Queue, q.Job)
	})
	if err != nil {
		return err
	}
	if c.JSON {
		return c.printMessage(j)
	}
	c.jobTable([]*cofferv1.QueueJob{j})
	p := j.GetPolicy()
	c.printf("\nenqueued %s; leased %d times; dead %d times, replayed %d times\nbackoff %s to %s\n", clock(j.GetCreateTime()), j.GetLeases(),
		j.GetDeaths(), j.GetReplays(), p.GetBackoffBase().AsDuration(), p.GetBackoffMax().AsDuration())
	if j.GetEndTime() != nil {
		c.printf("ended %s\n", clock(j.GetEndTime()))
	}
	if j.GetLastError() != "" {
		c.printf("last error:\n%s\n", j.GetLastError())
	}
	c.printf("payload:\n%s\n", shownText(j.GetPayload()))
	return nil
}

// shownText is a payload as it is where it is a text, else quoted: bytes that a
// terminal obeys are not sent to it.
func shownText(b []byte) string {
	plain := utf8.Valid(b) && !bytes.ContainsFunc(b, func(r rune) bool { return r != '\n' && r != '\t' && !unicode.IsPrint(r) })
	if plain {
		return string(b)
	}
	return strconv.Quote(string(b))
}
