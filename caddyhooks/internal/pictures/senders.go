package main

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"
)

// sendRequests sends requests as senders do, and returns the id of the run that fails. In the end some runs are running and
// others are queued.
func (h *house) sendRequests(ctx context.Context, a *agent) (failed string, err error) {
	// The invoice waits a moment for another run of its customer.
	if err := h.post(ctx, "agent", map[string]any{"message": "Is anything open for cus_318?", "chatId": "customer:cus_318"}, http.StatusAccepted); err != nil {
		return "", err
	}
	var waiting sync.WaitGroup
	answers := make([]error, 3)
	for i, customer := range []string{"cus_318", "cus_290", "cus_304"} {
		waiting.Go(func() { answers[i] = h.sendInvoice(ctx, 20417+i, customer) })
	}
	answers = append(answers, h.sendOthers(ctx))
	waiting.Wait()
	if err := errors.Join(answers...); err != nil {
		return "", err
	}
	err = h.until(ctx, "deliveries are given up", "/hooks/deliveries?status=dead", func(answer map[string][]map[string]any) bool {
		return len(answer["deliveries"]) == len(answers)-1
	})
	if err != nil {
		return "", err
	}
	err = h.until(ctx, "the failed run is found", "/hooks/runs?status=failed&chatId=customer:cus_318", func(answer map[string][]map[string]any) bool {
		for _, run := range answer["runs"] {
			failed, _ = run["runId"].(string)
		}
		return failed != ""
	})
	if err != nil {
		return "", err
	}
	a.busy.Store(true)
	return failed, h.sendLast(ctx)
}

// sendOthers sends requests whose runs end, and some that are refused.
func (h *house) sendOthers(ctx context.Context) error {
	var errs []error
	for i, title := range []string{"Export is empty", "Search ignores umlauts", "Typo on the pricing page"} {
		errs = append(errs, h.sendIssue(ctx, "example/web", 310+i, title))
	}
	for i := range 2 {
		errs = append(errs, h.post(ctx, "agent", map[string]any{"message": "Summarize the night.", "callbackUrl": h.callbacks + "/summaries/" + fmt.Sprint(i)}, http.StatusAccepted))
	}
	for range 3 {
		status, _, err := send(ctx, h.client, "POST", "https://"+site+"/api/hooks/agent", []byte(`{"message":"let me in"}`), "Authorization", "Bearer wrong")
		if err == nil && status != http.StatusUnauthorized {
			err = fmt.Errorf("a wrong token was answered %d", status)
		}
		errs = append(errs, err)
	}
	return errors.Join(append(errs, h.sendAlert(ctx, "DiskFull", "web-3", "The disk is 97 % full"))...)
}

// sendLast sends requests that stay open: those of one chat wait for each other. The last issue is the one that the page of its
// hook shows.
func (h *house) sendLast(ctx context.Context) error {
	var errs []error
	for i, name := range []string{"HighLatency", "DiskFull", "HighLatency", "CertificateExpires"} {
		errs = append(errs, h.sendAlert(ctx, name, fmt.Sprintf("web-%d", 1+i), "It needs a look"))
	}
	for i, repository := range []string{"example/web", "example/docs", "example/web", "example/api", "example/docs", "example/web", "example/api"} {
		errs = append(errs, h.sendIssue(ctx, repository, 320+i, "Export is empty"))
	}
	for i := range 3 {
		errs = append(errs, h.post(ctx, "wake", map[string]any{"text": fmt.Sprintf("Backup %d is done", i)}, http.StatusOK))
	}
	// Of a hook, one payload a second is kept.
	select {
	case <-ctx.Done():
	case <-time.After(1100 * time.Millisecond):
	}
	return errors.Join(append(errs, h.sendIssue(ctx, "example/api", 1207, "Login loops after password reset"))...)
}

// sendIssue sends an issue, signed.
func (h *house) sendIssue(ctx context.Context, repository string, number int, title string) error {
	body := fmt.Appendf(nil, `{
  "action": "opened",
  "issue": {
    "number": %d,
    "title": %q,
    "user": { "login": "newcomer" },
    "labels": [{ "name": "bug" }]
  },
  "repository": { "full_name": %q }
}`, number, title, repository)
	mac := hmac.New(sha256.New, []byte(githubSecret))
	mac.Write(body)
	return h.want(ctx, http.StatusAccepted, "github-issues", body, "X-Hub-Signature-256", "sha256="+hex.EncodeToString(mac.Sum(nil)),
		"X-GitHub-Delivery", fmt.Sprintf("%s-%d", repository, number))
}

// sendAlert sends an alert as Alertmanager does.
func (h *house) sendAlert(ctx context.Context, name, instance, summary string) error {
	return h.post(ctx, "alertmanager", map[string]any{
		"status": "firing", "groupLabels": map[string]any{"alertname": name}, "commonLabels": map[string]any{"instance": instance},
		"commonAnnotations": map[string]any{"summary": summary},
	}, http.StatusAccepted)
}

// sendInvoice sends an invoice, for which the agent finds no good answer.
func (h *house) sendInvoice(ctx context.Context, number int, customer string) error {
	return h.post(ctx, "invoices", map[string]any{"data": map[string]any{
		"id": fmt.Sprintf("in_%d", number), "total": "49.90", "currency": "EUR", "customer": customer,
	}}, http.StatusUnprocessableEntity, "X-Event-Id", fmt.Sprintf("evt_%d", number))
}

// post sends a request with the token.
func (h *house) post(ctx context.Context, hook string, fields map[string]any, want int, headers ...string) error {
	body, err := json.Marshal(fields)
	if err != nil {
		return err
	}
	return h.want(ctx, want, hook, body, append(headers, "Authorization", "Bearer "+token)...)
}

// want sends a request that is answered with a status.
func (h *house) want(ctx context.Context, want int, hook string, body []byte, headers ...string) error {
	status, answer, err := send(ctx, h.client, "POST", "https://"+site+"/api/hooks/"+hook, body, append(headers, "Content-Type", "application/json")...)
	if err == nil && status != want {
		err = fmt.Errorf("%s was answered %d: %s", hook, status, answer)
	}
	return err
}

// until waits until the admin API gives a good answer.
func (h *house) until(ctx context.Context, what, path string, good func(answer map[string][]map[string]any) bool) error {
	for {
		data, err := h.call(ctx, "GET", path, nil)
		if err != nil {
			return fmt.Errorf("waiting until %s: %w", what, err)
		}
		var answer map[string]json.RawMessage
		if err := json.Unmarshal(data, &answer); err != nil {
			return err
		}
		lists := make(map[string][]map[string]any)
		for key, raw := range answer {
			var rows []map[string]any
			if json.Unmarshal(raw, &rows) == nil {
				lists[key] = rows
			}
		}
		if good(lists) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting until %s: %w", what, ctx.Err())
		case <-time.After(100 * time.Millisecond):
		}
	}
}
