// Package requests has the commands that make a request to a hook: send, sign and render. They ask a running Caddy only for what they do
// not know: a hook, its signature, and what it makes of a request. The package imports api, auth, intake, settings, oneline, text and
// terminal and flags.
package requests

import (
	"bytes"
	"cmp"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/auth"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/cli/flags"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/intake"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/oneline"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/settings"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/terminal"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

// Caddy is what a running Caddy is asked for.
type Caddy interface {
	About() (api.About, error)
	// Mapping is a hook, with its secrets masked.
	Mapping(hook string) (settings.Mapping, error)
	// Preview is what a hook makes of a request, with another template unless that is nil.
	Preview(hook string, template *string, asked api.PreviewRequest) (*api.Preview, error)
	// Sign signs a payload with the secret of a hook. See Parameters.
	Sign(hook string, payload []byte, parameters url.Values) (*api.Signature, error)
	// WhyOff is why webhooks are off, with the command that helps.
	WhyOff(cmd *cobra.Command, reason string) string
}

// Opener finds the running Caddy that flags name. Verbs call it only if they have to ask.
type Opener func(ctx context.Context, cmd *cobra.Command) (Caddy, error)

// Send is the verb send.
func Send(open Opener) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "send HOOK {--payload FILE | --example}",
		Short: "Sends a webhook to the site, as its sender would",
		Long: `
Sends a real webhook to the site, as its sender would, and shows what became of it. The hook can be wake, agent or a custom one.

Where the site is, and how the hook authenticates its callers, is told by the running Caddy. With --url, nothing is asked of it for wake and
agent, and with --auth for no hook. The payload of a hook that takes signatures is signed with the secret in --secret-file or $HOOKS_SECRET;
without one, the running Caddy signs it. The token is read from --token-file or $HOOKS_TOKEN, or you are asked for it.

With --example, a payload of the hook's sender is made up, with the headers that come with it and those that conditions of the hook ask for.

A token, or a secret that is sent as it is, goes to another machine over HTTPS alone, unless --insecure is said.

If the certificate of the site is one of Caddy's own, set SSL_CERT_FILE to its root certificate. Redirects are not followed.

  caddy hooks send github-issues --payload issue.json --header 'X-GitHub-Event: issues'
  caddy hooks send github-issues --payload issue.json --secret-file gh.secret
  caddy hooks send github-issues --example
  echo '{"text": "The backup is done"}' | caddy hooks send wake --payload - --token-file token
  caddy hooks send agent --payload question.json --url https://example.com/api/hooks --repeat 20`,
		Args: flags.TakesOne("the hook"),
		RunE: flags.Interruptible(open.send),
	}
	AddFlags(cmd)
	cmd.Flags().String("url", "", "where the hooks are, as in https://example.com/api/hooks (default: the site of the running configuration)")
	flags.AddText(cmd, "auth", "", "the scheme of the hook, such as github, if no running Caddy is to be asked for it",
		flags.CompleteWords(settings.SchemeNames()...))
	cmd.Flags().Int("repeat", 1, "send it so many times, one after the other, and sum up")
	cmd.Flags().Bool("insecure", false, "send a token or a secret over plain HTTP to another machine, too")
	flags.NoFiles(cmd, "url", "repeat")
	hookSecretInput.AddFlags(cmd)
	tokenInput.AddFlags(cmd)
	return cmd
}

// maxRepeat bounds --repeat: this is for trying things out, and no load generator.
const maxRepeat = 100_000

func (open Opener) send(ctx context.Context, cmd *cobra.Command, args []string) error {
	repeat := flags.Number(cmd, "repeat")
	if repeat < 1 || repeat > maxRepeat {
		return flags.Usagef("--repeat must be from 1 to %d", maxRepeat)
	}
	s, err := open.newSending(ctx, cmd, args[0])
	if err != nil {
		return err
	}
	defer s.client.CloseIdleConnections()
	if repeat > 1 {
		return s.sendAll(ctx, repeat)
	}
	sent, err := s.send(ctx)
	if err != nil {
		return err
	}
	refused := s.refusal(sent)
	if flags.WantsJSON(cmd) {
		err = terminal.PrintJSON(cmd.OutOrStdout(), sent)
	} else if refused == nil {
		s.print(sent)
	}
	return errors.Join(err, refused)
}

// sending is what is sent, and how.
type sending struct {
	cmd        *cobra.Command
	screen     *terminal.Screen
	caddy      Caddy // nil if no running Caddy is asked
	about      api.About
	hook       string
	mapping    settings.Mapping // as far as it is known
	url        string
	query      string // of an example
	header     http.Header
	payload    []byte
	credential *settings.Credential // nil: the running Caddy signs
	challenged bool                 // the sender may try out whether the hook is there, and is answered as it likes
	client     *http.Client
}

func (open Opener) newSending(ctx context.Context, cmd *cobra.Command, hook string) (*sending, error) {
	s := &sending{cmd: cmd, screen: flags.Screen(cmd), hook: hook}
	base, scheme := flags.Text(cmd, "url"), flags.Text(cmd, "auth")
	err := errors.Join(hookSecretInput.Check(cmd), tokenInput.Check(cmd), checkBase(base))
	if err != nil {
		return nil, err
	}
	if s.header, s.payload, err = Read(cmd); err != nil {
		return nil, err
	}
	builtIn := settings.IsBuiltIn(hook)
	if base == "" || !builtIn && scheme == "" {
		if s.caddy, err = open(ctx, cmd); err != nil {
			return nil, err
		}
		if s.about, err = s.caddy.About(); err != nil {
			return nil, err
		}
	}
	m := settings.Mapping{AuthMode: scheme}
	if !builtIn && scheme == "" {
		if m, err = s.caddy.Mapping(hook); err != nil {
			return nil, err
		}
	}
	s.mapping = m
	if flags.IsOn(cmd, "example") {
		example, err := intake.ExampleFor(hook, m, s.header)
		if err != nil {
			return nil, err
		}
		s.header, s.payload, s.query = example.Header, example.Body, example.Values.Encode()
	}
	intake.WithContentType(s.header, s.payload, m.Body)
	if base == "" {
		if len(s.about.URLs) == 0 {
			return nil, flags.Usagef("the running configuration does not tell where the site is called: name that by --url, as in " +
				"https://example.com/api/hooks")
		}
		base = s.about.URLs[0]
		if i := slices.IndexFunc(s.about.URLs, func(u string) bool { return strings.HasPrefix(u, "https://") }); i >= 0 {
			base = s.about.URLs[i]
		}
	}
	s.url = strings.TrimRight(base, "/") + "/" + url.PathEscape(hook)
	if s.query != "" {
		s.url += "?" + s.query
	}
	if err := s.readCredential(m, scheme == ""); err != nil {
		return nil, err
	}
	if err := s.checkPrivacy(); err != nil {
		return nil, err
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.DisableCompression = true
	s.client = &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return s, nil
}

// checkPrivacy refuses to send a token or a secret where others can read it on its way. A signature tells nobody the secret.
func (s *sending) checkPrivacy() error {
	if s.credential == nil || s.credential.Secret == "" || s.credential.IsSigned() || flags.IsOn(s.cmd, "insecure") {
		return nil
	}
	called, err := url.Parse(s.url)
	if err != nil || called.Scheme == "https" || isThisMachine(called.Hostname()) {
		return err
	}
	return flags.Usagef("the token or secret would go to %s as it is, over plain HTTP, and others could read it on its way: name an https "+
		"URL by --url, or say --insecure if only you can read it there", s.url)
}

// isThisMachine reports whether a host is the machine itself for certain.
func isThisMachine(host string) bool {
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.Unmap().IsLoopback()
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	return host == "localhost" || strings.HasSuffix(host, ".localhost")
}

// checkBase checks --url.
func checkBase(base string) error {
	if base == "" {
		return nil
	}
	parsed, err := url.Parse(base)
	switch {
	case err == nil && parsed.User != nil:
		return flags.Usagef("--url must not have a user and a password: %s", flags.OthersCanRead)
	case err != nil || parsed.Host == "" || parsed.Scheme != "http" && parsed.Scheme != "https" || parsed.RawQuery != "" ||
		parsed.Fragment != "":
		return flags.Usagef("--url must be where the hooks are, as in https://example.com/api/hooks")
	}
	return nil
}

// readCredential reads the secret or the token that the scheme of a mapping needs. ofHook says that the scheme is that of a hook of the
// running Caddy, which can sign.
func (s *sending) readCredential(m settings.Mapping, ofHook bool) (err error) {
	scheme := settings.BearerScheme
	if m.AuthMode != "" {
		scheme = settings.FindScheme(m.AuthMode)
	}
	s.challenged = scheme != nil && scheme.AnswerTo != nil
	secret := ""
	switch {
	case scheme == nil: // of which newCredential tells
	case scheme == settings.BearerScheme:
		if flags.Text(s.cmd, hookSecretInput.File) != "" {
			return flags.Usagef("%s takes the token, and no secret of its own: use --token-file", s.hook)
		}
		secret, err = tokenInput.Read(s.cmd, s.screen)
	case scheme.NeedsSecret():
		if flags.Text(s.cmd, tokenInput.File) != "" {
			return flags.Usagef("%s takes a secret of its own, and not the token: use --secret-file", s.hook)
		}
		secret, err = hookSecretInput.Find(s.cmd)
		if err == nil && secret == "" && ofHook && scheme.Signs() {
			return nil
		}
		if err == nil && secret == "" {
			secret, err = hookSecretInput.Read(s.cmd, s.screen)
		}
	}
	if err != nil {
		return err
	}
	s.credential, err = newCredential(m, secret)
	return err
}

// sentJSON is what became of a webhook.
type sentJSON struct {
	Status       int             `json:"status"`
	RunID        string          `json:"runId,omitempty"`
	ChatID       string          `json:"chatId,omitempty"`
	Milliseconds float64         `json:"ms"`
	Replayed     bool            `json:"replayed,omitempty"` // it is the answer to an earlier request
	URL          string          `json:"url"`
	Warning      string          `json:"warning,omitempty"` // about fields without an effect
	Answer       json.RawMessage `json:"answer,omitempty"`  // JSON as it came, or a text

	location string
	outcome  acceptedJSON
	text     string // the answer
}

// acceptedJSON is how a site answers callers that do not wait for a run, or whom it refuses.
type acceptedJSON struct {
	Status       string            `json:"status"`
	ErrorMessage string            `json:"errorMessage"`
	RunID        string            `json:"runId"`
	ChatID       string            `json:"chatId"`
	Runs         []json.RawMessage `json:"runs"`
	ChatIDs      []string          `json:"chatIds"`
}

// maxAnswer bounds the answer of a site.
const maxAnswer = 64 << 20

// send sends the webhook once. An answer that refuses it is no error.
func (s *sending) send(ctx context.Context) (*sentJSON, error) {
	headers, called, err := s.sign()
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, called, bytes.NewReader(s.payload))
	if err != nil {
		return nil, err
	}
	r.Header = s.header.Clone()
	r.Header.Set("User-Agent", "caddy-hooks-send")
	for _, h := range headers {
		r.Header.Set(h.Name, h.Value)
	}
	start := time.Now()
	resp, err := s.client.Do(r)
	if err != nil {
		return nil, s.unreached(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, s.unreached(err)
	}
	return newSentJSON(resp, body, s.url, time.Since(start)), nil
}

// sign returns the headers that authenticate a request made now, and the URL to be called.
func (s *sending) sign() (headers []auth.Header, called string, err error) {
	if s.credential != nil {
		return s.credential.Headers(s.url, s.header, s.payload, time.Now())
	}
	signed, err := s.caddy.Sign(s.hook, s.payload, Parameters(s.header, s.query))
	if err != nil {
		return nil, "", err
	}
	if strings.HasPrefix(signed.URL, s.url) {
		return signed.Headers, signed.URL, nil // what the scheme adds to the URL
	}
	return signed.Headers, s.url, nil
}

// unreached says that the site does not answer.
func (s *sending) unreached(err error) error {
	if errors.Is(err, context.Canceled) {
		return errors.New("interrupted")
	}
	var outer *url.Error
	if errors.As(err, &outer) {
		err = outer.Err
	}
	hint := ""
	if errors.As(err, new(x509.UnknownAuthorityError)) {
		hint = "; if that is Caddy's own, set SSL_CERT_FILE to its root certificate, which is pki/authorities/local/root.crt in Caddy's data " +
			"directory"
	}
	return fmt.Errorf("%s does not answer: %w%s", s.url, err, hint)
}

func newSentJSON(resp *http.Response, body []byte, url string, took time.Duration) *sentJSON {
	sent := &sentJSON{
		Status: resp.StatusCode, Milliseconds: float64(took.Microseconds()) / 1000, URL: url,
		Replayed: resp.Header.Get("Idempotent-Replayed") == "true", Warning: resp.Header.Get(intake.WarningHeader),
		RunID: resp.Header.Get("X-Service-Run-Id"), ChatID: resp.Header.Get("X-Service-Chat-Id"), location: resp.Header.Get("Location"),
		text: string(body),
	}
	if json.Valid(body) {
		sent.Answer = bytes.TrimSpace(body)
		_ = json.Unmarshal(body, &sent.outcome) // the answer of an agent may be anything
	} else if len(body) > 0 {
		sent.Answer = text.JSONString(string(body))
	}
	sent.RunID, sent.ChatID = cmp.Or(sent.RunID, sent.outcome.RunID), cmp.Or(sent.ChatID, sent.outcome.ChatID)
	return sent
}

// print prints what became of a webhook that was not refused.
func (s *sending) print(sent *sentJSON) {
	line := []terminal.Text{terminal.Good(fmt.Sprint(sent.Status))}
	add := func(text string) { line = append(line, terminal.Plain(text)) }
	var next string
	query, _ := url.ParseQuery(s.query)
	preview := intake.PreviewMapping(s.mapping, api.PreviewRequest{Header: s.header, Payload: s.payload, Query: query})
	switch {
	case sent.outcome.Status == "ignored" && preview.Ignored != "":
		add("  ignored: the hook has " + preview.Ignored)
	case sent.outcome.Status == "ignored":
		add("  ignored: a condition of the hook leaves it out; headers that it looks at are given by --header")
	case sent.RunID != "":
		line = append(line, terminal.Plain("  run "), terminal.Bold(sent.RunID))
		next = flags.NextCommand(s.cmd, "show", sent.RunID)
	case len(sent.outcome.Runs)+len(sent.outcome.ChatIDs) > 0:
		add(fmt.Sprintf("  %d runs", len(sent.outcome.Runs)+len(sent.outcome.ChatIDs)))
		next = flags.NextCommand(s.cmd, "runs", "--hook", s.hook)
	}
	if sent.ChatID != "" {
		add("  chat " + sent.ChatID)
		next = cmp.Or(next, flags.NextCommand(s.cmd, "runs", "--chat", sent.ChatID))
	}
	if sent.Replayed {
		add("  (the answer to an earlier request)")
	}
	add("   " + milliseconds(sent.Milliseconds))
	if next != "" {
		line = append(line, terminal.Faint("        "+next))
	}
	s.screen.Line(line...)
	if sent.outcome.Status != "accepted" && sent.outcome.Status != "ignored" && sent.text != "" {
		s.screen.Lines(terminal.Plain(""), sent.text)
	}
	if preview.Missing > 0 && preview.Ignored == "" {
		s.screen.Note("%s", missingPlaceholders(preview))
	}
	if sent.Warning != "" {
		s.screen.Note("Warning: %s", sent.Warning)
	}
}

func milliseconds(ms float64) string { return fmt.Sprintf("%.0f ms", ms) }

// isOfHooks reports whether an answer is that of hooks, and not of something else that the site has at the URL.
func (s *sending) isOfHooks(sent *sentJSON) bool {
	return sent.RunID != "" || sent.ChatID != "" || sent.outcome.Status == "accepted" || sent.outcome.Status == "ignored" || s.challenged
}

// refusal is an error if the site refused a webhook, or does not know what it is.
func (s *sending) refusal(sent *sentJSON) error {
	if sent.Status < http.StatusMultipleChoices && s.isOfHooks(sent) {
		return nil
	}
	const maxSentence = 2000
	sentence := oneline.Of(cmp.Or(sent.outcome.ErrorMessage, strings.TrimSpace(sent.text), http.StatusText(sent.Status)), maxSentence)
	switch {
	case sent.Status < http.StatusMultipleChoices:
		return fmt.Errorf("%s answers %d, but not as hooks do: say by --url where they are, as in https://example.com/api/hooks", s.url,
			sent.Status)
	case sent.location != "" && sent.Status < http.StatusBadRequest:
		return fmt.Errorf("%s answers %d and points to %s: use that by --url", s.url, sent.Status, oneline.Of(sent.location, maxSentence))
	case sent.RunID != "":
		return fmt.Errorf("the run did not complete: %d %s\n%s", sent.Status, sentence, flags.NextCommand(s.cmd, "show", sent.RunID))
	case sent.Status == http.StatusNotFound && s.about.OffBecause != "":
		return fmt.Errorf("%s refuses it, since webhooks are off: %s", s.url, s.caddy.WhyOff(s.cmd, s.about.OffBecause))
	}
	return fmt.Errorf("%s refuses it: %d %s", s.url, sent.Status, sentence)
}

// sentSum sums up webhooks that were sent one after the other.
type sentSum struct {
	Sent     int            `json:"sent"`
	Statuses map[int]int    `json:"statuses"`
	Refused  map[int]string `json:"refused,omitempty"` // why the first of each status was
	Replayed int            `json:"replayed"`
	Median   float64        `json:"medianMs"`
	P95      float64        `json:"p95Ms"`
	Longest  float64        `json:"longestMs"`
}

// sendAll sends the webhook so many times. It stops at the first that is not answered.
func (s *sending) sendAll(ctx context.Context, times int) error {
	sum := &sentSum{Statuses: make(map[int]int), Refused: make(map[int]string)}
	progress := s.screen.Progress()
	var took []float64
	var broken error
	for broken == nil && sum.Sent < times {
		progress.Show("%d of %d sent", sum.Sent, times)
		sent, err := s.send(ctx)
		if err != nil {
			broken = err
			break
		}
		sum.Sent++
		sum.Statuses[sent.Status]++
		if sent.Replayed {
			sum.Replayed++
		}
		if refused := s.refusal(sent); refused != nil && sum.Refused[sent.Status] == "" {
			sum.Refused[sent.Status] = refused.Error()
		}
		took = append(took, sent.Milliseconds)
	}
	progress.Close()
	if sum.Sent == 0 {
		return broken
	}
	slices.Sort(took)
	sum.Median, sum.P95, sum.Longest = took[len(took)/2], took[(len(took)-1)*95/100], took[len(took)-1]
	if flags.WantsJSON(s.cmd) {
		if err := terminal.PrintJSON(s.cmd.OutOrStdout(), sum); err != nil {
			return err
		}
	} else {
		s.printSum(sum)
	}
	return errors.Join(broken, sum.refusal())
}

// printSum prints how many were answered how, and how long that took.
func (s *sending) printSum(sum *sentSum) {
	line := []terminal.Text{terminal.Plain(terminal.WithCommas(sum.Sent) + " sent")}
	for _, status := range slices.Sorted(maps.Keys(sum.Statuses)) {
		look := terminal.Good
		if sum.Refused[status] != "" {
			look = terminal.Bad
		}
		line = append(line, terminal.Plain("   "+terminal.WithCommas(sum.Statuses[status])+" × "), look(fmt.Sprint(status)))
	}
	line = append(line, terminal.Plain(fmt.Sprintf("   median %s   95 %% %s   longest %s", milliseconds(sum.Median), milliseconds(sum.P95),
		milliseconds(sum.Longest))),
		terminal.Faint("        "+flags.NextCommand(s.cmd, "runs", "--hook", s.hook)))
	s.screen.Line(line...)
	if sum.Replayed > 0 {
		s.screen.Note("%d of them were taken for repetitions of an earlier one, and became no run of their own.", sum.Replayed)
	}
}

// refusal is an error if some were refused.
func (sum *sentSum) refusal() error {
	if len(sum.Refused) == 0 {
		return nil
	}
	refused, why := 0, ""
	for _, status := range slices.Sorted(maps.Keys(sum.Refused)) {
		refused += sum.Statuses[status]
		why += "\n" + sum.Refused[status]
	}
	return fmt.Errorf("%d of %d were refused:%s", refused, sum.Sent, why)
}

// Parameters are the parameters by which the admin API is told the headers and the query of a request.
func Parameters(header http.Header, query string) url.Values {
	parameters := make(url.Values)
	var lines []string
	for name, values := range header {
		for _, value := range values {
			lines = append(lines, name+": "+value)
		}
	}
	if len(lines) > 0 {
		parameters.Set("headers", strings.Join(lines, "\n"))
	}
	if query != "" {
		parameters.Set("query", query)
	}
	return parameters
}
