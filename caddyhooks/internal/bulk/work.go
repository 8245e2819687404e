package bulk

import (
	"cmp"
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// work is an action that this node carries out, a page of ids after the other. The ids of a page are stored before anything is done with
// them, and what became of them together with the ids of the next page. Whoever goes on after a kill looks at the ids of one page
// to find out which of them are done, so the counts are exact.
type work struct {
	*Actions

	mu     sync.Mutex // for the action
	action *Action
	tried  bool // some of the page may have been done before this node came
}

// pageSize is how many are done at once. They share what it costs to write to the disk.
const pageSize = 128

// carryOut brings the action to its end, or to where it is stopped. It reports whether an operator has resumed it meanwhile.
func (w *work) carryOut(ctx context.Context, cancel context.CancelCauseFunc) (resumed bool) {
	w.tried = w.action.Tried
	err := w.update(ctx, func(a *Action) { a.Node, a.Tried, a.EndedAt = w.store.Node(), len(a.Page) > 0, time.Time{} })
	if err == nil {
		var beat sync.WaitGroup
		beating, still := context.WithCancel(ctx)
		beat.Go(func() {
			for w.sleep(beating, beatEvery) {
				if err := w.update(beating, func(a *Action) { a.Beat++ }); err != nil && beating.Err() == nil {
					cancel(err)
				}
			}
		})
		err = w.eachPage(ctx)
		still()
		beat.Wait()
	}
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = cause
	}
	if errors.Is(err, errTaken) {
		return false
	}
	return w.conclude(err)
}

// conclude stores how the action ended, and reports whether it goes on since an operator has resumed it.
func (w *work) conclude(err error) (resumed bool) {
	ctx, stop := context.WithTimeout(context.WithoutCancel(w.base), silence)
	defer stop()
	stored := w.update(ctx, func(a *Action) { // if it cannot be stored, somebody goes on where it was
		a.Node, a.Waiting, a.Tried = "", "", w.tried
		switch {
		case err == nil:
			a.State, a.EndedAt = Done, time.Now().UTC()
		case errors.Is(err, errStopped):
			a.EndedAt = time.Now().UTC()
		case w.base.Err() == nil:
			a.State, a.Error, a.EndedAt = Failed, err.Error(), time.Now().UTC()
		}
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	if a := w.action; a.State != Running {
		w.log().Info("bulk action ended", zap.String("bulk", a.ID), zap.String("do", string(a.Do)), zap.String("state", string(a.State)),
			zap.Int("done", a.Done), zap.Any("skipped", a.Skipped), zap.String("error", a.Error))
	}
	return stored == nil && errors.Is(err, errStopped) && w.action.State == Running
}

// update changes the action and stores it. errStopped says that an operator has stopped it, and errTaken that another node carries it
// out, or has.
func (w *work) update(ctx context.Context, edit func(*Action)) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	edit(w.action)
	for {
		err := w.store.Documents().Save(ctx, w.action.document())
		switch {
		case err == nil:
			w.action.revision++
		case errors.Is(err, engine.ErrDocumentChanged):
			err = w.takeWord(ctx)
			if err == nil {
				continue
			}
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		default: // a store that is full or unreachable may be back; the engine tells of it
			if !w.rest(ctx) {
				return context.Cause(ctx)
			}
			continue
		}
		if w.action.State == Stopped {
			return errStopped
		}
		return nil
	}
}

// takeWord reads what an operator wants of the action by now.
func (w *work) takeWord(ctx context.Context) error {
	stored, err := w.Get(ctx, w.action.ID)
	isOthers := func() bool {
		return stored.Node != "" && stored.Node != w.store.Node() || stored.State == Done || stored.State == Failed
	}
	if errors.Is(err, ErrNotFound) || err == nil && isOthers() {
		return errTaken
	}
	if err != nil {
		if !w.rest(ctx) {
			return context.Cause(ctx)
		}
		return nil
	}
	w.action.revision, w.action.State, w.action.StoppedBy = stored.revision, stored.State, stored.StoppedBy
	return nil
}

// rest waits a moment for the store, and leaves the action to others meanwhile.
func (w *work) rest(ctx context.Context) bool {
	w.mu.Unlock()
	defer w.mu.Lock()
	return w.sleep(ctx, time.Second)
}

func (w *work) eachPage(ctx context.Context) error {
	a := w.action
	for !a.Counted {
		n, err := w.countMatching(ctx)
		if err == nil {
			err = w.update(ctx, func(a *Action) { a.Matching, a.Counted = n, true })
		}
		if !w.bears(ctx, err) {
			return err
		}
	}
	for {
		if len(a.Page) == 0 {
			if a.Last {
				return nil
			}
			ids, skips, next, err := w.nextPage(ctx, a, *a.cursor())
			if err != nil && w.bears(ctx, err) {
				continue
			}
			if err != nil {
				return err
			}
			err = w.update(ctx, func(a *Action) {
				a.Page, a.Tried, a.Last = ids, len(ids) > 0, next == ""
				a.count(skips...)
				*a.cursor() = next
			})
			if err != nil {
				return err
			}
			w.tried = false
			continue
		}
		results := w.doPage(ctx)
		w.mu.Lock()
		a.count(results.skips...)
		a.Page, a.Tried, a.Waiting = results.left, len(results.left) > 0, "" // stored with the next page, or with the end
		w.tried = a.Tried && (w.tried || results.tried)
		w.mu.Unlock()
		if err := cmp.Or(context.Cause(ctx), results.err); !w.bears(ctx, err) {
			return err
		}
	}
}

// bears reports whether the action can go on in spite of an error: there is none, or the store may be back soon, which it waits for.
func (w *work) bears(ctx context.Context, err error) bool {
	if err == nil {
		return true
	}
	if context.Cause(ctx) != nil || !errors.Is(err, engine.ErrUnreachable) && !errors.Is(err, engine.ErrStopping) {
		return false
	}
	w.waits(err.Error())
	return w.sleep(ctx, time.Second)
}

// cursor is where the query of the action is.
func (a *Action) cursor() *string {
	if a.Runs != nil {
		return &a.Runs.Cursor
	}
	return &a.Deliveries.Cursor
}

// nextPage lists the ids of the page at a cursor, and tells of those there is nothing to do with.
func (s *Actions) nextPage(ctx context.Context, a *Action, cursor string) (ids []string, skips []Skip, next string, err error) {
	if a.Runs == nil {
		query := *a.Deliveries
		query.Cursor, query.Limit = cursor, pageSize
		page, next, err := s.engine.ListDeliveries(ctx, query)
		for _, d := range page {
			ids = append(ids, engine.DeliveryID(d.RunID, d.Index))
		}
		return ids, nil, next, err
	}
	query := *a.Runs
	query.Cursor = cursor
	page, next, err := s.engine.List(ctx, query)
	for _, record := range page {
		switch {
		case record.Run.ID > a.Newest: // accepted since
		case a.Do == Again && record.AgainAs != "":
			skips = append(skips, SkipRepeated)
		default:
			ids = append(ids, record.Run.ID)
		}
	}
	return ids, skips, next, err
}

// countMatching counts what there is to do.
func (w *work) countMatching(ctx context.Context) (n int, err error) {
	for cursor := ""; ; {
		ids, skips, next, err := w.nextPage(ctx, w.action, cursor)
		n += len(ids) + len(skips)
		if err != nil || next == "" {
			return n, err
		}
		cursor = next
	}
}

// pageResults is what became of a page.
type pageResults struct {
	skips []Skip   // one for each item that it came to
	left  []string // the ids of the others
	tried bool     // some of those may be done: their errors may have come after the deed
	err   error    // the first that is not one of an item alone
}

// doPage acts on the ids of the page.
func (w *work) doPage(ctx context.Context) *pageResults {
	results := new(pageResults)
	items := make([]*item, len(w.action.Page))
	var all sync.WaitGroup
	for i, id := range w.action.Page {
		items[i] = &item{id: id}
		if w.action.Do.IsAboutRuns() {
			all.Go(func() { items[i].record, items[i].err = w.engine.Find(ctx, id, 0) })
		}
	}
	all.Wait()
	switch w.action.Do {
	case Cancel: // what is queued goes first: nothing of it starts when the run before it is cancelled
		isQueued := func(i *item) string { return strconv.FormatBool(i.record != nil && i.record.Status == engine.Queued) }
		byState := groups(items, isQueued)
		w.doGroups(ctx, groups(byState["true"], (*item).key), results)
		w.doGroups(ctx, groups(byState["false"], (*item).key), results)
	case Again: // those of a chat go one after the other
		if results.err = w.awaitQueue(ctx); results.err != nil {
			results.left = w.action.Page
			return results
		}
		w.doGroups(ctx, groups(items, (*item).chat), results)
	default:
		w.doGroups(ctx, groups(items, (*item).key), results)
	}
	return results
}

// item is a run or a delivery of a page.
type item struct {
	id     string
	record *engine.Record // of a run
	err    error          // of reading it
}

func (i *item) key() string { return i.id }

func (i *item) chat() string {
	if i.record == nil {
		return ""
	}
	return i.record.Run.ChatID
}

// groups are items by what they have in common, in their order.
func groups(items []*item, by func(*item) string) map[string][]*item {
	groups := make(map[string][]*item)
	for _, i := range items {
		groups[by(i)] = append(groups[by(i)], i)
	}
	return groups
}

// doGroups acts on groups side by side, and on the items of a group one after the other.
func (w *work) doGroups(ctx context.Context, groups map[string][]*item, results *pageResults) {
	var mu sync.Mutex
	var all sync.WaitGroup
	for _, group := range groups {
		all.Go(func() {
			for n, i := range group {
				skip, err := notSkipped, context.Cause(ctx)
				tries := err == nil
				if tries {
					skip, err = w.do(ctx, i)
				}
				mu.Lock()
				if err == nil {
					results.skips = append(results.skips, skip)
				} else {
					for _, rest := range group[n:] {
						results.left = append(results.left, rest.id)
					}
					results.err, results.tried = cmp.Or(results.err, err), results.tried || tries && i.err == nil
				}
				mu.Unlock()
				if err != nil {
					return
				}
			}
		})
	}
	all.Wait()
}
