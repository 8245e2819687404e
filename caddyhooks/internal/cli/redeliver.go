package cli

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/terminal"
)

func init() {
	verbs = append(verbs, retryVerb, dropVerb)
}

func retryVerb() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "retry {DELIVERY-ID | --dead | --pending [--host HOST] [--channel NAME]}",
		Short: "Sends deliveries again, one or all of a kind",
		Long: `
Sends a delivery now that was given up, or that waits for its next attempt. Its schedule begins anew.

With --dead or --pending it does so for all that were given up or that wait, or for those to a host or a channel. You are told how many these
are, and asked first. Then it waits a while, and tells what became of them.

  caddy hooks retry --dead --host callbacks.acme.dev
  caddy hooks retry msg_019a86f24c1e7b029d551f0c6c0e7a31_0`,
		Args: checkDeliveryArgs,
		RunE: errandVerb(runRetry),

		ValidArgsFunction: completeOne(completeDeliveries(engine.Dead, engine.Pending)),
	}
	addDeliveryFlags(cmd)
	cmd.Flags().Duration("wait", defaultRetryWait, "wait at most so long to tell what became of them")
	return cmd
}

func dropVerb() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "drop {DELIVERY-ID | --dead | --pending [--host HOST] [--channel NAME]}",
		Short: "Forgets deliveries that have not arrived, one or all of a kind",
		Long: `
Forgets a delivery that was given up, or that waits for its next attempt. It is never sent.

With --dead or --pending it does so for all that were given up or that wait, or for those to a host or a channel. You are told how many these
are, and asked first.

  caddy hooks drop --dead --channel team-chat
  caddy hooks drop msg_019a86f24c1e7b029d551f0c6c0e7a31_0`,
		Args: checkDeliveryArgs,
		RunE: errandVerb(runDrop),

		ValidArgsFunction: completeOne(completeDeliveries(engine.Dead, engine.Pending)),
	}
	addDeliveryFlags(cmd)
	return cmd
}

func addDeliveryFlags(cmd *cobra.Command) {
	cmd.Flags().Bool("dead", false, "all deliveries that were given up")
	cmd.Flags().Bool("pending", false, "all deliveries that wait for their next attempt")
	cmd.Flags().String("host", "", "of those, the callbacks to this host")
	cmd.Flags().String("channel", "", "of those, the messages to this channel")
	_ = cmd.RegisterFlagCompletionFunc("channel", completeChannels)
	noFiles(cmd, "host")
	addYesFlag(cmd)
}

func checkDeliveryArgs(cmd *cobra.Command, args []string) error {
	all := flagIsOn(cmd, "dead") || flagIsOn(cmd, "pending")
	filtered := cmd.Flags().Changed("host") || cmd.Flags().Changed("channel")
	switch {
	case len(args) == 0 && !all:
		return errors.New("say which: the id of a delivery, --dead or --pending")
	case len(args) > 0 && (all || filtered):
		return errors.New("name one delivery, or all by --dead, --pending, --host and --channel")
	case cmd.Flags().Changed("host") && flagText(cmd, "host") == "" || cmd.Flags().Changed("channel") && flagText(cmd, "channel") == "":
		return errors.New("--host and --channel must not be empty") // which would select everything
	}
	return takesOneAtMost(cmd, args)
}

const (
	defaultRetryWait = 10 * time.Second
	deliveryPage     = 256
	deliveriesAtOnce = 8   // requests under way, which share what it costs to write to the disk
	maxWatched       = 500 // deliveries of which it is told what became of them
)

// deliveryQuery are the deliveries that flags select.
func deliveryQuery(cmd *cobra.Command) url.Values {
	query := make(url.Values)
	var statuses []string
	for _, status := range []engine.DeliveryStatus{engine.Dead, engine.Pending} {
		if flagIsOn(cmd, string(status)) {
			statuses = append(statuses, string(status))
		}
	}
	query.Set("status", strings.Join(statuses, ","))
	for _, name := range []string{"host", "channel"} {
		if value := flagText(cmd, name); value != "" {
			query.Set(name, value)
		}
	}
	return query
}

// describeDeliveries says how many deliveries these are, as in "3 deliveries to callbacks.acme.dev".
func describeDeliveries(n int, query url.Values) string {
	text := counted(n, "delivery", "deliveries")
	for _, name := range []string{"host", "channel"} {
		if value := query.Get(name); value != "" {
			text += " to " + value
		}
	}
	return text
}

// redeliveries are deliveries that something is done with.
type redeliveries struct {
	*errand
	query    url.Values
	selected int
	done     []api.DeliveryDetails // as the answers show them; a dropped one has an id alone
}

// retrySum is what became of deliveries that were put back.
type retrySum struct {
	Selected      int        `json:"selected"`
	Retried       int        `json:"retried"`
	Delivered     int        `json:"delivered"`
	Pending       int        `json:"pending"`
	Dead          int        `json:"dead"`
	Unwatched     int        `json:"unwatched,omitempty"` // beyond those of which it is told what became of them
	NextAttemptAt *time.Time `json:"nextAttemptAt,omitempty"`
	lastError     string
	waitsFor      string
}

func runRetry(e *errand, cmd *cobra.Command, args []string) error {
	r := &redeliveries{errand: e, selected: 1}
	retry := func(id string) (d api.DeliveryDetails, err error) {
		_, err = e.call(apiCall{method: http.MethodPost, path: "deliveries/" + url.PathEscape(id) + "/retry"}, &d)
		return d, err
	}
	if len(args) > 0 {
		id, err := e.deliveryIDOf(args[0])
		if err != nil {
			return err
		}
		d, err := retry(id)
		if err != nil {
			return err
		}
		r.done = append(r.done, d)
	} else {
		r.query = deliveryQuery(cmd)
		if err := r.count(apiCall{method: http.MethodPost, path: "deliveries/retry"}); err != nil {
			return err
		}
		if r.selected == 0 {
			e.screen.Note("There is nothing to send again.")
		} else if err := confirm(cmd, describeDeliveries(r.selected, r.query)+" will be sent again."); err != nil {
			return err
		}
		if err := r.each("put back", retry); err != nil {
			return err
		}
	}
	patience, _ := cmd.Flags().GetDuration("wait")
	sum, err := r.watch(patience)
	if err != nil {
		return err
	}
	if e.json {
		return printValue(e.screen.Out(), sum)
	}
	if r.selected > 0 {
		e.printRetried(cmd, sum)
	}
	return nil
}

func runDrop(e *errand, cmd *cobra.Command, args []string) error {
	r := &redeliveries{errand: e, selected: 1}
	drop := func(id string) (api.DeliveryDetails, error) {
		_, err := e.call(apiCall{method: http.MethodDelete, path: "deliveries/" + url.PathEscape(id)}, nil)
		return api.DeliveryDetails{}, err
	}
	if len(args) > 0 {
		id, err := e.deliveryIDOf(args[0])
		if err != nil {
			return err
		}
		var d api.DeliveryDetails
		if _, err := e.get("deliveries/"+url.PathEscape(id), nil, &d); err != nil {
			return err
		}
		if err := confirm(cmd, fmt.Sprintf("The %s to %s will be forgotten, and never sent.", d.Kind, d.Target)); err != nil {
			return err
		}
		if _, err := drop(id); err != nil {
			return err
		}
		r.done = append(r.done, d)
	} else {
		r.query = deliveryQuery(cmd)
		if err := r.count(apiCall{method: http.MethodDelete, path: "deliveries"}); err != nil {
			return err
		}
		if r.selected == 0 {
			e.screen.Note("There is nothing to drop.")
		} else if err := confirm(cmd, describeDeliveries(r.selected, r.query)+" will be forgotten, and never sent."); err != nil {
			return err
		}
		if err := r.each("dropped", drop); err != nil {
			return err
		}
	}
	if e.json {
		return printValue(e.screen.Out(), map[string]int{"selected": r.selected, "dropped": len(r.done)})
	}
	if r.selected > 0 {
		e.screen.Line(terminal.Plain(fmt.Sprintf("%s of %s dropped", withCommas(len(r.done)), withCommas(r.selected))))
	}
	return nil
}

// count asks how many deliveries the query selects.
func (r *redeliveries) count(call apiCall) error {
	call.query = url.Values{"dry": {"1"}}
	for name, values := range r.query {
		call.query[name] = values
	}
	var plan struct {
		Would int `json:"would"`
	}
	err := wrongFilter(r.callLong(call, &plan))
	r.selected = plan.Would
	return err
}

// each does something with all deliveries that the query selects, page by page. One that has arrived, is under way or gone by then is left out.
func (r *redeliveries) each(word string, do func(id string) (api.DeliveryDetails, error)) error {
	if r.selected == 0 {
		return nil
	}
	progress := r.screen.Progress()
	defer progress.Close()
	for cursor := ""; ; {
		query := url.Values{"limit": {strconv.Itoa(deliveryPage)}}
		for name, values := range r.query {
			query[name] = values
		}
		if cursor != "" {
			query.Set("cursor", cursor)
		}
		var page struct {
			Deliveries []api.DeliveryDetails `json:"deliveries"`
			Cursor     string                `json:"cursor"`
		}
		if _, err := r.get("deliveries", query, &page); err != nil {
			return r.soFar(word, err)
		}
		for len(page.Deliveries) > 0 {
			some := page.Deliveries[:min(deliveriesAtOnce, len(page.Deliveries))]
			page.Deliveries = page.Deliveries[len(some):]
			if err := r.atOnce(some, do); err != nil {
				return r.soFar(word, err)
			}
			progress.Show("%d of %d %s", len(r.done), r.selected, word)
		}
		if cursor = page.Cursor; cursor == "" {
			return nil
		}
	}
}

// soFar adds to an error how far the work has got.
func (r *redeliveries) soFar(word string, err error) error {
	return fmt.Errorf("%w; %d of %d were %s before that", err, len(r.done), r.selected, word)
}

// atOnce does something with some deliveries at once.
func (r *redeliveries) atOnce(some []api.DeliveryDetails, do func(id string) (api.DeliveryDetails, error)) error {
	done, errs := make([]api.DeliveryDetails, len(some)), make([]error, len(some))
	var all sync.WaitGroup
	for i, d := range some {
		all.Go(func() { done[i], errs[i] = do(d.ID) })
	}
	all.Wait()
	for i, err := range errs {
		var refused *refusedError
		switch {
		case err == nil:
			r.done = append(r.done, done[i])
		case errors.As(err, &refused) && (refused.status == http.StatusNotFound || refused.status == http.StatusConflict):
		default:
			return err
		}
	}
	return nil
}

// watch looks, for a while, at what becomes of deliveries that were put back.
func (r *redeliveries) watch(patience time.Duration) (*retrySum, error) {
	sum := &retrySum{Selected: r.selected, Retried: len(r.done), Unwatched: max(0, len(r.done)-maxWatched)}
	progress := r.screen.Progress()
	defer progress.Close()
	waiting := r.done[:len(r.done)-sum.Unwatched]
	for deadline := time.Now().Add(patience); len(waiting) > 0; {
		last := !time.Now().Before(deadline)
		var still []api.DeliveryDetails
		for _, d := range waiting {
			now, err := r.lookAt(d.ID)
			if err != nil {
				return nil, err
			}
			tried := now.Attempts > d.Attempts && now.NextAttemptAt != nil || now.WaitsFor != ""
			if now.Status == engine.Pending && !tried && !last {
				still = append(still, d)
				continue
			}
			sum.add(now)
		}
		waiting = still
		if len(waiting) == 0 {
			break
		}
		progress.Show("%d delivered, %d to go", sum.Delivered, len(waiting))
		if err := r.pause(pollPause); err != nil {
			return nil, err
		}
	}
	return sum, nil
}

// lookAt asks for a delivery. One that is not there any more was sent or dropped, and told about when it was.
func (r *redeliveries) lookAt(id string) (d api.DeliveryDetails, err error) {
	_, err = r.get("deliveries/"+url.PathEscape(id), nil, &d)
	var refused *refusedError
	if errors.As(err, &refused) && refused.status == http.StatusNotFound {
		return d, nil
	}
	return d, err
}

func (sum *retrySum) add(d api.DeliveryDetails) {
	switch d.Status {
	case engine.Delivered:
		sum.Delivered++
	case engine.Dead:
		sum.Dead++
		sum.lastError = d.LastError
	case engine.Pending:
		sum.Pending++
		if d.NextAttemptAt != nil && (sum.NextAttemptAt == nil || d.NextAttemptAt.Before(*sum.NextAttemptAt)) {
			sum.NextAttemptAt = d.NextAttemptAt
		}
		sum.waitsFor = d.WaitsFor
	}
}

func (e *errand) printRetried(cmd *cobra.Command, sum *retrySum) {
	line := []terminal.Text{terminal.Plain(fmt.Sprintf("%s of %s put back", withCommas(sum.Retried), withCommas(sum.Selected)))}
	add := func(n int, look func(string) terminal.Text, word, more string) {
		if n > 0 {
			line = append(line, look("   "+withCommas(n)+" "+word))
			if more != "" {
				line = append(line, terminal.Plain(" ("+more+")"))
			}
		}
	}
	next := ""
	switch {
	case sum.NextAttemptAt != nil && time.Until(*sum.NextAttemptAt) > 0:
		next = "next attempt in " + roughly(time.Until(*sum.NextAttemptAt))
	case sum.waitsFor != "":
		next = "waits for " + sum.waitsFor
	}
	add(sum.Delivered, terminal.Good, "delivered", "")
	add(sum.Pending, terminal.Warn, "pending", next)
	add(sum.Dead, terminal.Bad, "given up again", sum.lastError)
	if sum.Unwatched > 0 {
		line = append(line, terminal.Faint("   and "+withCommas(sum.Unwatched)+" more: "+nextCommand(cmd, "deliveries", "--status", "pending")))
	}
	e.screen.Line(line...)
}
