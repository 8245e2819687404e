package caddyhooks_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

func TestAdminAPINamesParametersThatItDoesNotKnow(t *testing.T) {
	s := hookstest.StartSite(t, "hooks {\nstore memory\n}")
	endpoints := caddyhooks.AdminEndpoints()
	if len(endpoints) < 15 {
		t.Fatalf("found only %d endpoints", len(endpoints))
	}
	for _, e := range endpoints {
		method, path, _ := strings.Cut(e.Pattern, " ")
		path = "/hooks" + strings.NewReplacer("{id}", "none", "{name}", "none").Replace(path)
		words := []string{`there is no parameter "sttaus"`, "this endpoint takes none"}
		if len(e.Parameters) > 0 {
			words = append(words[:1:1], e.Parameters...)
		}
		t.Run(e.Pattern, func(t *testing.T) {
			s.AdminRequest(method, path+"?sttaus=failed", "{}").WantAdminError(t, 400, words...)
			s.AdminRequest(method, path+"?a=%zz", "{}").WantAdminError(t, 400, "the query cannot be read")
			for _, name := range e.Parameters {
				query := fmt.Sprintf("?%s=1&%[1]s=2", name)
				s.AdminRequest(method, path+query, "{}").WantAdminError(t, 400, name+" must be given once")
			}
		})
	}
	s.AdminRequest("GET", "/hooks/runs?"+strings.Repeat("x", 5000), "").WantAdminError(t, 400, strings.Repeat("x", 80)+"…")
	if resp := s.AdminRequest("GET", "/hooks/runs?hook=a&chatId=b&status=failed&limit=5&cursor=", ""); resp.Status != 200 {
		t.Errorf("known parameters: got %d %s", resp.Status, resp.Body)
	}
}

// Errors are in Caddy's log, too, so they quote no more than the beginning of what an operator sent.
func TestAdminErrorsAreShort(t *testing.T) {
	s := hookstest.StartSite(t, "hooks {\nstore memory\n}")
	long := strings.Repeat("x", 2000)
	member := `{"` + long + `":1}`
	for _, c := range []struct{ request, body string }{
		{"PATCH /settings", member},
		{"PUT /mappings/a", member},
		{"PATCH /settings", `{"mappings":[` + member + `]}`},
		{"PATCH /settings", `{"mappings":[{"name":"` + long + `"}]}`},
		{"PUT /mappings/" + long, `{"messageTemplate":"{a}"}`},
		{"GET /mappings/" + long, ""},
		{"DELETE /mappings/" + long, ""},
		{"POST /mappings/" + long + "/sign", ""},
		{"POST /runs/none/again", member},
		{"GET /runs/" + long, ""},
		{"POST /runs/" + long + "/cancel", ""},
		{"GET /deliveries/" + long, ""},
		{"GET /instances/" + long + "/about", ""},
	} {
		method, path, _ := strings.Cut(c.request, " ")
		resp := s.AdminRequest(method, "/hooks"+path, c.body)
		if resp.Status < 400 || resp.Status > 499 || len(resp.Body) > 1000 {
			t.Errorf("%.30s %.30s: got %d and %d bytes: %.200s", c.request, c.body, resp.Status, len(resp.Body), resp.Body)
		}
	}
}
