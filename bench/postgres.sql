-- The ledger as a careful team would build it on PostgreSQL: one function call
-- a command, one transaction a call, one row of balances a bucket that a
-- conditional UPDATE changes last (so that its lock is held for the commit
-- only), a row of state and receipts a reservation, an entry and an event a
-- transition. Amounts are in minor units.
--
-- Choices that make it fast: HOT updates of balances (no index on what changes,
-- room in the page), of reservations likewise; identity keys; the event is the
-- entry's own row, not a second copy; no foreign keys on the hot path, the
-- functions being the only writers.
DROP SCHEMA IF EXISTS coffer_bench CASCADE;
CREATE SCHEMA coffer_bench;
SET search_path = coffer_bench;

CREATE TABLE balance (
  budget    int    NOT NULL,
  bucket    int    NOT NULL,
  funded    bigint NOT NULL,
  available bigint NOT NULL CHECK (available >= 0),
  held      bigint NOT NULL DEFAULT 0 CHECK (held >= 0),
  spent     bigint NOT NULL DEFAULT 0 CHECK (spent >= 0),
  refunded  bigint NOT NULL DEFAULT 0 CHECK (refunded >= 0 AND refunded <= spent),
  PRIMARY KEY (budget, bucket)
) WITH (fillfactor = 10);

CREATE TABLE hold (
  id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  key      text   NOT NULL UNIQUE,           -- tenant, order, benefit, attempt
  request  bytea  NOT NULL,                  -- hash of what Reserve asked for
  budget   int    NOT NULL,
  bucket   int    NOT NULL,
  amount   bigint NOT NULL,
  spent    bigint NOT NULL DEFAULT 0,
  refunded bigint NOT NULL DEFAULT 0,
  state    "char" NOT NULL DEFAULT 'R',      -- R held, C committed, L released, E expired
  due      timestamptz NOT NULL
) WITH (fillfactor = 80);
-- Not a partial index on the state: a change of an indexed state forbids HOT.
CREATE INDEX hold_due ON hold USING brin (due);

CREATE TABLE entry (
  id     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  hold   bigint NOT NULL,
  kind   "char" NOT NULL,                    -- R, C, L, E, or V for a refund
  ref    text   NOT NULL DEFAULT '',         -- refund id
  budget int    NOT NULL,
  bucket int    NOT NULL,
  amount bigint NOT NULL,
  at     timestamptz NOT NULL DEFAULT now(),
  UNIQUE (hold, kind, ref)
);

CREATE TABLE outbox (
  id      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  entry   bigint NOT NULL,
  event   text   NOT NULL,
  payload jsonb  NOT NULL
);

-- Each function gives 'done', 'replayed', or the reason of a refusal.

CREATE FUNCTION note(h bigint, k "char", r text, b int, s int, a bigint, e text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE n bigint;
BEGIN
  INSERT INTO coffer_bench.entry (hold, kind, ref, budget, bucket, amount) VALUES (h, k, r, b, s, a) RETURNING id INTO n;
  INSERT INTO coffer_bench.outbox (entry, event, payload) VALUES (n, e, jsonb_build_object('hold', h, 'budget', b, 'amount', a));
END $$;

CREATE FUNCTION reserve(k text, q bytea, b int, s int, a bigint, ttl interval) RETURNS text LANGUAGE plpgsql AS $$
DECLARE h bigint; seen bytea;
BEGIN
  INSERT INTO coffer_bench.hold (key, request, budget, bucket, amount, due) VALUES (k, q, b, s, a, now() + ttl)
    ON CONFLICT (key) DO NOTHING RETURNING id INTO h;
  IF h IS NULL THEN
    SELECT request INTO seen FROM coffer_bench.hold WHERE key = k;
    RETURN CASE WHEN seen = q THEN 'replayed' ELSE 'IDEMPOTENCY_CONFLICT' END;
  END IF;
  PERFORM coffer_bench.note(h, 'R', '', b, s, a, 'reserved');
  UPDATE coffer_bench.balance SET available = available - a, held = held + a
    WHERE budget = b AND bucket = s AND available >= a;
  IF NOT FOUND THEN RAISE EXCEPTION USING ERRCODE = 'CB001', MESSAGE = 'INSUFFICIENT_BUDGET'; END IF;
  RETURN 'done';
END $$;

CREATE FUNCTION settle(k text, target "char", e text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE x record; paid bigint;
BEGIN
  UPDATE coffer_bench.hold SET state = target, spent = CASE WHEN target = 'C' THEN amount ELSE 0 END
    WHERE key = k AND state = 'R' RETURNING id, budget, bucket, amount INTO x;
  IF NOT FOUND THEN
    SELECT state INTO x FROM coffer_bench.hold WHERE key = k;
    RETURN CASE WHEN NOT FOUND THEN 'RESERVATION_NOT_FOUND' WHEN x.state = target THEN 'replayed' ELSE 'ILLEGAL_STATE' END;
  END IF;
  PERFORM coffer_bench.note(x.id, target, '', x.budget, x.bucket, x.amount,
    CASE target WHEN 'C' THEN 'committed' WHEN 'L' THEN 'released' ELSE 'expired' END);
  paid := CASE WHEN target = 'C' THEN x.amount ELSE 0 END;
  UPDATE coffer_bench.balance SET held = held - x.amount, spent = spent + paid, available = available + x.amount - paid
    WHERE budget = x.budget AND bucket = x.bucket;
  RETURN 'done';
END $$;

CREATE FUNCTION refund(k text, r text, a bigint) RETURNS text LANGUAGE plpgsql AS $$
DECLARE x record;
BEGIN
  SELECT id, budget, bucket, spent, refunded, state INTO x FROM coffer_bench.hold WHERE key = k FOR NO KEY UPDATE;
  IF NOT FOUND THEN RETURN 'RESERVATION_NOT_FOUND'; END IF;
  IF EXISTS (SELECT FROM coffer_bench.entry WHERE hold = x.id AND kind = 'V' AND ref = r) THEN RETURN 'replayed'; END IF;
  IF x.state <> 'C' THEN RETURN 'ILLEGAL_STATE'; END IF;
  IF x.refunded + a > x.spent THEN RETURN 'REFUND_EXCEEDS_COMMITTED'; END IF;
  UPDATE coffer_bench.hold SET refunded = refunded + a WHERE id = x.id;
  PERFORM coffer_bench.note(x.id, 'V', r, x.budget, x.bucket, a, 'refunded');
  UPDATE coffer_bench.balance SET refunded = refunded + a, available = available + a
    WHERE budget = x.budget AND bucket = x.bucket;
  RETURN 'done';
END $$;

-- Reserve and commit in one round trip and one transaction.
CREATE FUNCTION buy(k text, q bytea, b int, s int, a bigint, ttl interval) RETURNS text LANGUAGE plpgsql AS $$
DECLARE r text;
BEGIN
  r := coffer_bench.reserve(k, q, b, s, a, ttl);
  IF r NOT IN ('done', 'replayed') THEN RETURN r; END IF;
  RETURN coffer_bench.settle(k, 'C', '');
END $$;

-- Gives up to n lapsed holds back, those no other call works on.
CREATE FUNCTION lapse(n int) RETURNS bigint LANGUAGE sql AS $$
  SELECT count(coffer_bench.settle(key, 'E', '')) FROM (
    SELECT key FROM coffer_bench.hold WHERE state = 'R' AND due < now() LIMIT n FOR UPDATE SKIP LOCKED) due
$$;

-- One row for each thing that is wrong. Empty is good.
CREATE FUNCTION audit() RETURNS TABLE (problem text) LANGUAGE sql AS $$
  SELECT format('budget %s bucket %s does not add up', budget, bucket) FROM coffer_bench.balance
    WHERE available + held + spent - refunded <> funded
  UNION ALL
  SELECT format('budget %s bucket %s differs from its entries', b.budget, b.bucket) FROM coffer_bench.balance b LEFT JOIN (
    SELECT budget, bucket,
      sum(CASE kind WHEN 'R' THEN amount WHEN 'V' THEN 0 ELSE -amount END) AS held,
      sum(CASE kind WHEN 'C' THEN amount ELSE 0 END) AS spent,
      sum(CASE kind WHEN 'V' THEN amount ELSE 0 END) AS refunded
    FROM coffer_bench.entry GROUP BY budget, bucket) e USING (budget, bucket)
    WHERE (b.held, b.spent, b.refunded) IS DISTINCT FROM (coalesce(e.held, 0), coalesce(e.spent, 0), coalesce(e.refunded, 0))
  UNION ALL
  SELECT format('budget %s bucket %s differs from its holds', b.budget, b.bucket) FROM coffer_bench.balance b LEFT JOIN (
    SELECT budget, bucket, sum(CASE state WHEN 'R' THEN amount ELSE 0 END) AS held, sum(spent) AS spent, sum(refunded) AS refunded
    FROM coffer_bench.hold GROUP BY budget, bucket) h USING (budget, bucket)
    WHERE (b.held, b.spent, b.refunded) IS DISTINCT FROM (coalesce(h.held, 0), coalesce(h.spent, 0), coalesce(h.refunded, 0))
  UNION ALL
  SELECT format('%s entries have %s events', e.n, o.n) FROM
    (SELECT count(*) AS n FROM coffer_bench.entry) e, (SELECT count(DISTINCT entry) AS n FROM coffer_bench.outbox) o WHERE e.n <> o.n
$$;
