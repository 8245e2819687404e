package hookstest

import (
	"strings"
	"testing"
)

// PatchSettings changes live settings, which must go well.
func (s *Server) PatchSettings(body string) Response {
	s.T.Helper()
	resp := s.AdminRequest("PATCH", "/hooks/settings", body)
	if resp.Status != 200 {
		s.T.Fatalf("PATCH settings %s: got %d %s", body, resp.Status, resp.Body)
	}
	return resp
}

// PutMapping saves a live mapping, which must go well.
func (s *Server) PutMapping(name, body string) {
	s.T.Helper()
	resp := s.AdminRequest("PUT", "/hooks/mappings/"+name, body)
	if resp.Status != 200 {
		s.T.Fatalf("PUT mapping %s %s: got %d %s", name, body, resp.Status, resp.Body)
	}
}

// Problems are what GET shows of live settings that are not in force.
func (s *Server) Problems() []string {
	s.T.Helper()
	shown, _ := s.AdminRequest("GET", "/hooks/settings", "").Field(s.T, "problems").([]any)
	var problems []string
	for _, p := range shown {
		problems = append(problems, p.(string))
	}
	return problems
}

// WantProblems checks that there is one problem for each list of words, in that order, and that it speaks of them.
func (s *Server) WantProblems(t testing.TB, want ...[]string) {
	t.Helper()
	got := s.Problems()
	if len(got) != len(want) {
		t.Errorf("the problems are %q, want %d of them", got, len(want))
		return
	}
	for i, words := range want {
		for _, word := range words {
			if !strings.Contains(got[i], word) {
				t.Errorf("the problem %q does not speak of %q", got[i], word)
			}
		}
	}
}
