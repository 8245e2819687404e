package caddyhooks_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	gotoken "go/token"
	"net"
	"net/http"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime/pprof"
	"slices"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

// What caddyserver.com shows about a module is taken from these comments.
func TestModulesAreDocumented(t *testing.T) {
	t.Parallel()
	var documented int
	seen := make(map[reflect.Type]bool)
	for _, id := range caddy.Modules() {
		info, err := caddy.GetModule(id)
		if err != nil {
			t.Fatal(err)
		}
		module := reflect.TypeOf(info.New())
		if module.Kind() == reflect.Pointer && isOurs(module.Elem()) {
			documented++
			wantDocumented(t, module, seen)
		}
	}
	if documented < 7 {
		t.Errorf("found only %d modules", documented)
	}
}

const modulePath = "github.com/caddy-hooks/caddy-hooks/caddyhooks"

func isOurs(kind reflect.Type) bool {
	return kind.PkgPath() == modulePath || strings.HasPrefix(kind.PkgPath(), modulePath+"/")
}

// wantDocumented checks that a type, its fields that have a name in JSON, and their types have comments.
func wantDocumented(t *testing.T, kind reflect.Type, seen map[reflect.Type]bool) {
	t.Helper()
	for kind.Kind() == reflect.Pointer || kind.Kind() == reflect.Slice || kind.Kind() == reflect.Map {
		if kind.Name() != "" {
			break
		}
		kind = kind.Elem()
	}
	if !isOurs(kind) || seen[kind] {
		return
	}
	seen[kind] = true
	doc, fields := sourceComments(t, kind)
	if doc == "" {
		t.Errorf("%v has no comment", kind)
	}
	if kind.Kind() != reflect.Struct {
		return
	}
	for i := range kind.NumField() {
		field := kind.Field(i)
		_, inJSON := field.Tag.Lookup("json")
		if inJSON && field.IsExported() && fields[field.Name] == "" {
			t.Errorf("%v.%s has no comment", kind, field.Name)
		}
		if inJSON || field.Anonymous {
			wantDocumented(t, field.Type, seen)
		}
	}
}

// parsedFiles are the files of directories that sourceFiles has read.
var parsedFiles = make(map[string][]*ast.File)

// sourceFiles reads the source files in a directory, once for all tests.
func sourceFiles(t *testing.T, dir string) []*ast.File {
	t.Helper()
	if parsed := parsedFiles[dir]; parsed != nil {
		return parsed
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("found no source in %s: %v", dir, err)
	}
	for _, file := range files {
		parsed, err := parser.ParseFile(gotoken.NewFileSet(), file, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		parsedFiles[dir] = append(parsedFiles[dir], parsed)
	}
	return parsedFiles[dir]
}

// sourceComments reads the comments on a type and its fields from the source.
func sourceComments(t *testing.T, kind reflect.Type) (doc string, fields map[string]string) {
	t.Helper()
	for _, parsed := range sourceFiles(t, filepath.Join(".", strings.TrimPrefix(kind.PkgPath(), modulePath))) {
		for _, decl := range parsed.Decls {
			general, ok := decl.(*ast.GenDecl)
			if !ok {
				continue
			}
			for _, spec := range general.Specs {
				declared, ok := spec.(*ast.TypeSpec)
				if !ok || declared.Name.Name != kind.Name() {
					continue
				}
				fields = make(map[string]string)
				if structure, ok := declared.Type.(*ast.StructType); ok {
					for _, field := range structure.Fields.List {
						for _, name := range field.Names {
							fields[name.Name] = cmp.Or(field.Doc.Text(), asSentence(field.Comment.Text()))
						}
					}
				}
				return general.Doc.Text() + declared.Doc.Text(), fields
			}
		}
	}
	t.Fatalf("%v is not in the source", kind)
	return "", nil
}

// asSentence makes a sentence of the comment behind a field.
func asSentence(comment string) string {
	comment = strings.TrimSpace(comment)
	if comment == "" {
		return ""
	}
	return strings.ToUpper(comment[:1]) + strings.TrimSuffix(comment[1:], ".") + "."
}

// ourGoroutine matches the call of a function of this module in a stack trace, callOfTests that of a test or of a part for tests.
var (
	ourGoroutine = regexp.MustCompile(`caddy-hooks/caddyhooks(/[a-z/]+)?\.[^\n]*`)
	callOfTests  = regexp.MustCompile(`internal/[a-z]+test[./]|caddyhooks\.Test`) // a test may wait for its turn
)

func TestProvisioningHasNoSideEffects(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	for _, name := range []string{"HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME"} {
		t.Setenv(name, dir)
	}
	upstream, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer upstream.Close()
	config := func(directives string) string {
		return "{\n\tadmin off\n\tpersist_config off\n\tlog {\n\t\tlevel PANIC\n\t}\n}\nhttp://127.0.0.1:" + hookstest.FreePort(t) + " {\n" + directives + "\n}\n"
	}
	if err := validate(t, config("respond ok")); err != nil {
		t.Fatal(err)
	}
	before := hookstest.FilesIn(t, dir)
	good := `
	hooks {
		enabled
		token ` + hookstest.Token + `
		runner http http://` + upstream.Addr().String() + `
		channel notes log
		hook a {
			callback_url http://` + upstream.Addr().String() + `
		}
		callbacks {
			allow 127.0.0.1
			ports *
		}
	}`
	if err := validate(t, config(good)); err != nil {
		t.Fatal(err)
	}
	if err := validate(t, config(good+"\n\thooks broken {\n\t\ttoken {env.HOOKS_TEST_NOWHERE}\n\t}")); err == nil {
		t.Fatal("a configuration with a missing secret is valid")
	}

	if after := hookstest.FilesIn(t, dir); !slices.Equal(before, after) {
		t.Errorf("there were the files %v, and now %v", before, after)
	}
	var left []string // calls of our functions
	defer func() {
		if t.Failed() {
			t.Logf("left were %q", left)
		}
	}()
	hookstest.Eventually(t, "no goroutine is left", func() bool {
		var stacks bytes.Buffer
		if err := pprof.Lookup("goroutine").WriteTo(&stacks, 2); err != nil {
			t.Fatal(err)
		}
		left = slices.DeleteFunc(ourGoroutine.FindAllString(stacks.String(), -1), func(call string) bool {
			return callOfTests.MatchString(call)
		})
		return len(left) == 0
	})
	// Had anybody connected, that connection would be the first to be accepted.
	mine, err := net.Dial("tcp", upstream.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer mine.Close()
	first, err := upstream.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	if first.RemoteAddr().String() != mine.LocalAddr().String() {
		t.Error("the runner or the callback was connected to")
	}
}

func TestValidatingLeavesTheRunningInstanceAlone(t *testing.T) {
	release := make(chan struct{})
	rn := hookstest.StartRunner(t, func(w http.ResponseWriter, r *http.Request, _ hookstest.Turn) {
		select {
		case <-release:
			fmt.Fprint(w, "ok")
		case <-r.Context().Done():
		}
	})
	s := hookstest.StartSite(t, "hooks {\nenabled\ntoken "+hookstest.Token+"\nrunner http "+rn.URL+"\n}")
	if resp := s.AdminRequest("PUT", "/hooks/mappings/live", `{"action":"wake"}`); resp.Status != 200 {
		t.Fatalf("saving a mapping: %d %s", resp.Status, resp.Body)
	}
	held := make(chan hookstest.Response, 1)
	go func() {
		resp, _ := hookstest.TryRequest("POST", s.URL+"/api/hooks/agent", `{"message":"a","syncResponse":true}`, "Authorization", "Bearer "+hookstest.Token)
		held <- resp
	}()
	rn.Next()

	other := s.Caddyfile(s.Site + " {\nhooks {\nenabled\nrunner echo\ntoken another\nworkers 1\n}\n}")
	if err := validate(t, other); err != nil {
		t.Fatal(err)
	}
	select {
	case resp := <-held:
		t.Errorf("the held caller was answered %d %s", resp.Status, resp.Body)
	default:
	}
	if resp := s.Post("/api/hooks/live", `{}`); resp.Status != 200 {
		t.Errorf("the live mapping is answered %d %s", resp.Status, resp.Body)
	}
	close(release)
	if resp := hookstest.ReceiveWithin(t, "the caller is answered", held); resp.Status != 200 || resp.Body != "ok" {
		t.Errorf("the held caller was answered %d %s", resp.Status, resp.Body)
	}
}

// validate provisions a Caddyfile without starting it.
func validate(t *testing.T, text string) error {
	t.Helper()
	adapted, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(text), map[string]any{"filename": "Caddyfile"})
	if err != nil {
		t.Fatal(err)
	}
	var config *caddy.Config
	if err := json.Unmarshal(adapted, &config); err != nil {
		t.Fatal(err)
	}
	return caddy.Validate(config)
}

func TestInstancesOfOneConfigurationGoSideBySide(t *testing.T) {
	s := hookstest.StartSite(t, `
	hooks {
		enabled
		token first
		runner echo
		hook same {
			action agent
			sync
			template "first {a}"
		}
	}
	hooks second {
		enabled
		token second
		runner echo
		path /second
		hook same {
			action agent
			sync
			template "second {a}"
		}
	}`)
	for _, test := range []struct {
		path, token string
		status      int
		body        string
	}{
		{"/api/hooks/same", "first", 200, "first 1"},
		{"/second/same", "second", 200, "second 1"},
		{"/api/hooks/same", "second", 401, ""},
		{"/second/same", "first", 401, ""},
	} {
		resp := s.Request("POST", test.path, `{"a":1}`, "Authorization", "Bearer "+test.token)
		if resp.Status != test.status || test.body != "" && resp.Body != test.body {
			t.Errorf("%s with %s: got %d %s", test.path, test.token, resp.Status, resp.Body)
		}
	}
	if resp := s.AdminRequest("GET", "/hooks/instances", ""); strings.TrimSpace(resp.Body) != `["default","second"]` {
		t.Errorf("got the instances %s", resp.Body)
	}
}

func TestSiteOnTwoPortsIsOneInstance(t *testing.T) {
	release := make(chan struct{})
	rn := hookstest.StartRunner(t, func(w http.ResponseWriter, r *http.Request, _ hookstest.Turn) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
	})
	s := hookstest.NewServer(t)
	other := "http://127.0.0.1:" + hookstest.FreePort(t)
	s.Site += ", " + other
	s.Load("hooks {\nenabled\ntoken " + hookstest.Token + "\nworkers 1\nqueue_limit 1\nrunner http " + rn.URL + "\n}")
	ask := func(url string) hookstest.Response {
		t.Helper()
		resp, err := hookstest.TryRequest("POST", url+"/api/hooks/agent", `{"message":"a"}`, "Authorization", "Bearer "+hookstest.Token)
		if err != nil {
			t.Fatal(err)
		}
		return resp
	}
	if resp := ask(s.URL); resp.Status != 202 {
		t.Errorf("the first port answers %d %s", resp.Status, resp.Body)
	}
	rn.Next() // the only worker has it
	if resp := ask(other); resp.Status != 202 {
		t.Errorf("the second port answers %d %s", resp.Status, resp.Body)
	}
	ask(s.URL).WantError(t, 503)
	ask(other).WantError(t, 503)
	close(release)
	rn.Next()
	if resp := s.AdminRequest("GET", "/hooks/instances", ""); strings.TrimSpace(resp.Body) != `["default"]` {
		t.Errorf("got the instances %s", resp.Body)
	}
}

func TestSameNameWithAnotherConfigurationIsRefused(t *testing.T) {
	s := hookstest.NewServer(t)
	other := "http://127.0.0.1:" + hookstest.FreePort(t)
	for _, test := range []struct {
		name, one, two string
		good           bool
	}{
		{"the same", "hooks", "hooks", true},
		{"the same with a default spelled out", "hooks", "hooks default {\npath /api/hooks\nworkers 16\nmax_request 1MB\nstore bolt\nmax_attempts 5\nretention 168h\n}", true},
		{"another name", "hooks", "hooks other {\nenabled\nrunner echo\n}", true},
		{"another token", "hooks {\ntoken a\n}", "hooks {\ntoken b\n}", false},
		{"another runner", "hooks", "hooks {\nrunner echo {\ndelay 1s\n}\n}", false},
		{"another hook", "hooks x", "hooks x {\nhook y\n}", false},
		{"another path", "hooks", "hooks {\npath /y\n}", false},
	} {
		err := hookstest.LoadCaddyfile(s.Caddyfile(s.Site + " {\n" + test.one + "\n}\n" + other + " {\n" + test.two + "\n}"))
		if test.good && err != nil {
			t.Errorf("%s: %v", test.name, err)
		}
		if !test.good && (err == nil || !strings.Contains(err.Error(), "configured twice")) {
			t.Errorf("%s: got the error %v", test.name, err)
		}
	}
}
