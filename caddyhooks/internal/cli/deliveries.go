package cli

import (
	"cmp"
	"net/url"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/terminal"
)

func init() {
	verbs = append(verbs, deliveriesVerb)
}

func deliveriesVerb() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "deliveries [--status STATUS,…] [--host HOST] [--channel CHANNEL] [--limit N]",
		Short: "Lists what is sent out: callbacks and messages to channels",
		Long: `
Lists what is sent out, that of the newest run first: callbacks and messages to channels. One that is pending is tried again; one that is dead
was given up. Hosts and channels that are left alone for a while are told on stderr.`,
		Example: `  caddy hooks deliveries --status dead
  caddy hooks deliveries --status pending,dead --host callbacks.example.com`,
		Args: takesNone,
		RunE: errandVerb(runDeliveries),
	}
	deliveryFlags(cmd)
	cmd.Flags().String("status", "", "only those that are pending, delivered or dead, or several of that with commas between them")
	_ = cmd.RegisterFlagCompletionFunc("status", completeSeveral(completeDeliveryStatuses))
	limitFlag(cmd, "deliveries")
	return cmd
}

// deliveryFlags are those that select deliveries by where they go.
func deliveryFlags(cmd *cobra.Command) {
	cmd.Flags().String("host", "", "only callbacks to this host")
	cmd.Flags().String("channel", "", "only messages to this channel")
	_ = cmd.RegisterFlagCompletionFunc("host", cobra.NoFileCompletions)
	_ = cmd.RegisterFlagCompletionFunc("channel", completeChannels)
}

func runDeliveries(e *errand, cmd *cobra.Command, _ []string) error {
	query := make(url.Values)
	for _, flag := range []string{"status", "host", "channel"} {
		if err := setFrom(cmd, query, flag, flag); err != nil {
			return err
		}
	}
	limit, err := limitOf(cmd)
	if err != nil {
		return err
	}
	none := "Nothing was sent out yet. A run sends its answer out if it has a callbackUrl, or a channel to deliver to."
	if len(query) > 0 {
		none = "No delivery matches. Leave some of the flags out to see more."
	}
	clock, table := newClock(), e.screen.Rows("CREATED", "STATUS", "HOOK", "TRIES", "NEXT", "DELIVERY", "TO")
	return showList(e, listing{part: "deliveries", member: "deliveries", query: query, limit: limit, beside: e.showPaused, ifNone: func() { e.noteUnknownChannel(query.Get("channel")) }}, none, func(deliveries []api.DeliveryDetails) {
		var rows [][]terminal.Text
		for i := range deliveries {
			d := &deliveries[i]
			rows = append(rows, []terminal.Text{terminal.Plain(clock.when(d.CreatedAt)), deliveryStatusCell(d.Status), terminal.Plain(d.Hook), terminal.Plain(strconv.Itoa(d.Attempts)),
				terminal.Plain(clock.next(d)), terminal.Plain(d.ID), terminal.Plain(shortText(targetAndReason(d), maxReasonCell))})
		}
		table.Print(rows...)
	})
}

// next is when a delivery is tried again, as in "in 5s".
func (c clock) next(d *api.DeliveryDetails) string {
	switch {
	case d.Status != engine.Pending:
		return ""
	case d.NextAttemptAt == nil || !d.NextAttemptAt.After(c.now):
		return "now"
	default:
		return c.ago(d.NextAttemptAt)
	}
}

// targetAndReason is where a delivery goes to, and why it has not got there.
func targetAndReason(d *api.DeliveryDetails) string {
	text := d.Target
	if d.Status != engine.Delivered && d.LastError != "" {
		text += ": " + d.LastError
	}
	if d.WaitsFor != "" {
		text += "; waits for " + d.WaitsFor
	}
	return text
}

// showPaused tells which hosts and channels are left alone.
func (e *errand) showPaused(page listPage) error {
	var paused []api.Paused
	if raw, ok := page.members["paused"]; ok {
		if err := e.decode(raw, &paused); err != nil {
			return err
		}
	}
	clock := newClock()
	for _, p := range paused {
		e.screen.Note("%s is left alone until %s (%s).", cmp.Or(p.Host, "The channel "+p.Channel), clock.when(p.Until), clock.ago(p.Until))
	}
	return nil
}
