package caddyhooks_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

// adminWith calls the admin API with headers, which are pairs of name and value.
func adminWith(s *hookstest.Server, method, path, body string, headers ...string) hookstest.Response {
	s.T.Helper()
	resp, err := hookstest.TryRequest(method, s.Admin+path, body, append(headers, "Content-Type", "application/json")...)
	if err != nil {
		s.T.Fatalf("%s %s: %v", method, path, err)
	}
	return resp
}

func etagOf(s *hookstest.Server, path string) string {
	s.T.Helper()
	resp := s.AdminRequest("GET", path, "")
	tag := resp.Header.Get("ETag")
	if resp.Status != 200 || len(tag) < 10 || !strings.HasPrefix(tag, `"`) || !strings.HasSuffix(tag, `"`) {
		s.T.Fatalf("GET %s: %d with the ETag %q", path, resp.Status, tag)
	}
	return tag
}

func TestTheSecondOfTwoOperatorsIsTold(t *testing.T) {
	s := hookstest.StartSite(t, "hooks {\nrunner echo\n}")
	s.PutMapping("a", `{"authMode":"hmac","hmacHeader":"X-Sig","hmacSecret":"first"}`)
	s.PutMapping("b", `{}`)
	settings, a, b := etagOf(s, "/hooks/settings"), etagOf(s, "/hooks/mappings/a"), etagOf(s, "/hooks/mappings/b")

	// Only the secret is replaced, which the tag must tell and nothing that is shown does.
	saved := adminWith(s, "PUT", "/hooks/mappings/a", `{"authMode":"hmac","hmacHeader":"X-Sig","hmacSecret":"second"}`, "If-Match", a)
	newA := saved.Header.Get("ETag")
	if saved.Status != 200 || newA == "" || newA == a || newA != etagOf(s, "/hooks/mappings/a") {
		t.Errorf("got %d %s, ETag %s after %s", saved.Status, saved.Body, newA, a)
	}
	for _, c := range []struct{ method, path, body, tag string }{
		{"PUT", "/hooks/mappings/a", `{"authMode":"hmac","hmacHeader":"X-Sig","hmacSecret":"third"}`, a},
		{"DELETE", "/hooks/mappings/a", "", a},
		{"PATCH", "/hooks/settings", `{"enabled":true}`, settings},
	} {
		resp := adminWith(s, c.method, c.path, c.body, "If-Match", c.tag)
		resp.WantAdminError(t, 412, "was changed by admin at 20", "Z; nothing was saved")
	}
	if got := etagOf(s, "/hooks/mappings/a"); got != newA {
		t.Errorf("the tag is %s, and was %s", got, newA)
	}
	// The other hook is as it was.
	if got := etagOf(s, "/hooks/mappings/b"); got != b {
		t.Errorf("the tag of the other hook is %s, and was %s", got, b)
	}
	if resp := adminWith(s, "PUT", "/hooks/mappings/b", `{"action":"agent"}`, "If-Match", `"other", `+b); resp.Status != 200 {
		t.Errorf("got %d %s", resp.Status, resp.Body)
	}
	patched := adminWith(s, "PATCH", "/hooks/settings", `{"enabled":true}`, "If-Match", etagOf(s, "/hooks/settings"))
	if patched.Status != 200 || patched.Header.Get("ETag") != etagOf(s, "/hooks/settings") {
		t.Errorf("got %d, ETag %s", patched.Status, patched.Header.Get("ETag"))
	}
	if resp := adminWith(s, "DELETE", "/hooks/mappings/a", "", "If-Match", newA); resp.Status != 204 {
		t.Errorf("got %d %s", resp.Status, resp.Body)
	}
	adminWith(s, "PUT", "/hooks/mappings/a", `{"authMode":"hmac","hmacHeader":"X-Sig","hmacSecret":"••••"}`, "If-Match", newA).
		WantAdminError(t, 412, "the hook a was deleted by admin at 20")
	adminWith(s, "DELETE", "/hooks/mappings/a", "", "If-Match", newA).WantAdminError(t, 404, "no hook")
	adminWith(s, "PUT", "/hooks/mappings/none", `{}`, "If-Match", "*").WantAdminError(t, 412, "the hook none is not what If-Match")
	adminWith(s, "PUT", "/hooks/mappings/a", `{}`, "If-Match", "unquoted").WantAdminError(t, 400, "If-Match", "quotes")
	adminWith(s, "PATCH", "/hooks/settings", `{}`, "If-Match", "unquoted").WantAdminError(t, 400, "If-Match", "quotes")
	adminWith(s, "DELETE", "/hooks/mappings/b", ``, "If-None-Match", "unquoted").WantAdminError(t, 400, "If-None-Match", "quotes")
}

func TestAHookIsCreatedOnce(t *testing.T) {
	s := hookstest.StartSite(t, "hooks {\nrunner echo\n}")
	const writers = 8
	statuses := make([]int, writers)
	var all sync.WaitGroup
	for i := range writers {
		all.Go(func() {
			body := fmt.Sprintf(`{"messageTemplate":"of writer %d"}`, i)
			resp, err := hookstest.TryRequest("PUT", s.Admin+"/hooks/mappings/new", body, "If-None-Match", "*", "Content-Type", "application/json")
			if err != nil {
				t.Error(err)
			}
			statuses[i] = resp.Status
		})
	}
	all.Wait()
	created := 0
	for _, status := range statuses {
		switch status {
		case 200:
			created++
		case 412:
		default:
			t.Errorf("got %d", status)
		}
	}
	if created != 1 {
		t.Errorf("it was created %d times: %v", created, statuses)
	}
}

func TestTagsOutliveARestartAndAreThoseOfAllNodes(t *testing.T) {
	s := hookstest.StartSite(t, "hooks {\nrunner echo\n}")
	s.PutMapping("a", `{"authMode":"hmac","hmacHeader":"X-Sig","hmacSecret":"first","syncResponse":true,"action":"agent","responseJsonSchema":{ "type" : "object", "a": "<>" }}`)
	s.PatchSettings(`{"token":"one"}`)
	settings, a := etagOf(s, "/hooks/settings"), etagOf(s, "/hooks/mappings/a")
	s.PatchSettings(`{"token":"one"}`) // which is there already
	s.Restart("hooks {\nrunner echo\n}")
	if got := etagOf(s, "/hooks/settings"); got != settings {
		t.Errorf("the tag of the settings is %s, and was %s", got, settings)
	}
	if got := etagOf(s, "/hooks/mappings/a"); got != a {
		t.Errorf("the tag of the hook is %s, and was %s", got, a)
	}
	s.PatchSettings(`{"token":"two"}`)
	if got := etagOf(s, "/hooks/settings"); got == settings {
		t.Error("the token was replaced, and the tag of the settings is the same")
	}
	s.Stop()

	data := uuid.NewString()
	s.Load("hooks a {\nstore shared " + data + "\npath /a\n}\nhooks b {\nstore shared " + data + "\npath /b\n}")
	if resp := s.AdminRequest("PUT", "/hooks/instances/a/mappings/x", `{"authMode":"hmac","hmacHeader":"X-Sig","hmacSecret":"first"}`); resp.Status != 200 {
		t.Fatalf("got %d %s", resp.Status, resp.Body)
	}
	for _, path := range []string{"/settings", "/mappings/x"} {
		if ofA, ofB := etagOf(s, "/hooks/instances/a"+path), etagOf(s, "/hooks/instances/b"+path); ofA != ofB {
			t.Errorf("%s has the tags %s and %s", path, ofA, ofB)
		}
	}
	tag := etagOf(s, "/hooks/instances/b/mappings/x")
	s.AdminRequest("PUT", "/hooks/instances/a/mappings/x", `{"authMode":"hmac","hmacHeader":"X-Sig","hmacSecret":"second"}`)
	adminWith(s, "PUT", "/hooks/instances/b/mappings/x", `{}`, "If-Match", tag).WantAdminError(t, 412, "the hook x was changed by admin")
}

func TestSettingsTellWhichAreSaved(t *testing.T) {
	s := hookstest.StartSite(t, "hooks {\nenabled\nrunner echo\n}")
	s.AdminRequest("GET", "/hooks/settings", "").WantMembers(t, `{"pinned":["enabled"],"saved":[]}`)
	s.PatchSettings(`{"token":"one","historySeconds":0}`)
	s.AdminRequest("GET", "/hooks/settings", "").WantMembers(t, `{"pinned":["enabled"],"saved":["historySeconds","token"]}`)
	s.PatchSettings(`{"token":null}`).WantMembers(t, `{"saved":["historySeconds"]}`)
}
