package truce

import (
	"context"
	"iter"
)

// pages returns an iterator over the rows of all pages of a reply. `next` changes the options for
// each further page, from the last reply and its last row.
func pages[Options any](
	field string, first Options,
	read func(o Options) (Reply, error), next func(o *Options, reply, last Reply),
) iter.Seq2[Reply, error] {
	return func(yield func(Reply, error) bool) {
		for o := first; ; {
			reply, err := read(o)
			if err != nil {
				yield(nil, err)
				return
			}
			rows := reply.Documents(field)
			for _, row := range rows {
				if !yield(row, nil) {
					return
				}
			}
			if !reply.Bool("more") || len(rows) == 0 {
				return
			}
			next(&o, reply, rows[len(rows)-1])
		}
	}
}

// IterateJobs returns all jobs of a queue, the oldest first. Limit is the size of a page.
func (db *Database) IterateJobs(
	ctx context.Context, queue string, o JobsOptions,
) iter.Seq2[Reply, error] {
	return pages("jobs", o,
		func(o JobsOptions) (Reply, error) { return db.Jobs(ctx, queue, o) },
		func(o *JobsOptions, _, last Reply) { o.After = last.ID("_id") })
}

// IterateStatement returns all lines of an account, in order. Limit is the size of a page.
func (db *Database) IterateStatement(
	ctx context.Context, ledger string, o LedgerStatementOptions,
) iter.Seq2[Reply, error] {
	return pages("lines", o,
		func(o LedgerStatementOptions) (Reply, error) { return db.LedgerStatement(ctx, ledger, o) },
		func(o *LedgerStatementOptions, _, last Reply) { o.After = last.Int("number") })
}

// IterateTransfers returns all transfers, the last changed first. Limit is the size of a page.
func (db *Database) IterateTransfers(
	ctx context.Context, collection string, o TransfersOptions,
) iter.Seq2[Reply, error] {
	return pages("transfers", o,
		func(o TransfersOptions) (Reply, error) { return db.Transfers(ctx, collection, o) },
		func(o *TransfersOptions, reply, _ Reply) {
			o.Skip += int64(len(reply.Documents("transfers")))
		})
}

// IterateTree returns all items that match, of one version: by itemId if there is no Sort. Limit is
// the size of a page.
func (db *Database) IterateTree(
	ctx context.Context, tree string, o TreeReadOptions,
) iter.Seq2[Reply, error] {
	return pages("items", o,
		func(o TreeReadOptions) (Reply, error) { return db.TreeRead(ctx, tree, o) },
		func(o *TreeReadOptions, reply, last Reply) {
			next := TreeReadOptions{Filter: o.Filter, Sort: o.Sort, Limit: o.Limit}
			next.Token = reply.Text("token")
			if o.Sort != nil {
				next.Skip = o.Skip + int64(len(reply.Documents("items")))
			} else {
				next.After = last.Lookup("itemId")
			}
			*o = next
		})
}

// IterateTreeLog returns the versions of a tree, the newest first. Limit is the size of a page.
func (db *Database) IterateTreeLog(
	ctx context.Context, tree string, o TreeLogOptions,
) iter.Seq2[Reply, error] {
	return pages("versions", o,
		func(o TreeLogOptions) (Reply, error) { return db.TreeLog(ctx, tree, o) },
		func(o *TreeLogOptions, _, last Reply) { o.Before = last.Int("version") })
}

// IterateTreeDiff returns all changes from one version of a tree to another, by itemId. Limit is
// the size of a page.
func (db *Database) IterateTreeDiff(
	ctx context.Context, tree string, o TreeDiffOptions,
) iter.Seq2[Reply, error] {
	return pages("changes", o,
		func(o TreeDiffOptions) (Reply, error) { return db.TreeDiff(ctx, tree, o) },
		func(o *TreeDiffOptions, _, last Reply) { o.After = last.Lookup("itemId") })
}
