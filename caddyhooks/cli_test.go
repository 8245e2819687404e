package caddyhooks_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	gotoken "go/token"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime/pprof"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
)

// TestBinary tries the program that people build.
func TestBinary(t *testing.T) {
	b := newBinary(t)
	t.Run("takes every Caddyfile of this repository", b.takesEveryCaddyfile)
	t.Run("lists the modules", b.listsModules)
	t.Run("validates a configuration that is being served", b.validatesBesideAServer)
	t.Run("lets held callers go when it is terminated", func(t *testing.T) { b.letsHeldCallersGo(t, "", "1s") })
	t.Run("lets held callers go before Caddy drops them", func(t *testing.T) { b.letsHeldCallersGo(t, "grace_period 2s", "1m") })
	t.Run("lets a turn end when it is terminated", b.letsATurnEnd)
}

var environmentVariable = regexp.MustCompile(`\{(?:env\.|\$)([A-Z][A-Z0-9_]*)\}`)

func (b *caddyBinary) takesEveryCaddyfile(t *testing.T) {
	var files []string
	err := filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (entry.Name() == ".git" || entry.Name() == "testdata" || entry.Name() == "node_modules"):
			return fs.SkipDir
		case !entry.IsDir() && strings.HasPrefix(entry.Name(), "Caddyfile"):
			files = append(files, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(files, "../Caddyfile.example") || len(files) < 2 {
		t.Fatalf("found no Caddyfile.example, or no example besides it: %v", files)
	}
	for _, file := range files {
		t.Run(file, func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var env []string
			for _, match := range environmentVariable.FindAllSubmatch(text, -1) {
				env = append(env, string(match[1])+"=whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw") // good for every kind of secret
			}
			for _, args := range [][]string{
				{"adapt", "--adapter", "caddyfile", "--config", file},
				{"validate", "--adapter", "caddyfile", "--config", file},
				{"fmt", "--diff", file},
			} {
				out, err := b.command(env, args...).CombinedOutput()
				if err != nil || bytes.Contains(out, []byte("not formatted")) {
					t.Errorf("caddy %s: %v\n%s", strings.Join(args, " "), err, out)
				}
			}
		})
	}
}

func (b *caddyBinary) listsModules(t *testing.T) {
	out, err := b.command(nil, "list-modules").Output()
	if err != nil {
		t.Fatal(err)
	}
	listed := strings.Fields(string(out))
	for _, module := range []string{"hooks", "http.handlers.hooks", "admin.api.hooks",
		"hooks.runners.echo", "hooks.runners.http", "hooks.stores.bolt", "hooks.stores.memory",
		"hooks.channels.telegram", "hooks.channels.slack", "hooks.channels.discord", "hooks.channels.matrix",
		"hooks.channels.email", "hooks.channels.webhook", "hooks.channels.log"} {
		if !slices.Contains(listed, module) {
			t.Errorf("%s is not listed", module)
		}
	}
}

func (b *caddyBinary) validatesBesideAServer(t *testing.T) {
	p := b.serve(t, "", `
	hooks {
		enabled
		token `+token+`
		channel notes log
		hook echo {
			action agent
			sync
			template "{text}"
		}
	}`)
	if resp, err := tryRequest("PUT", p.admin+"/hooks/mappings/live", `{"action":"agent","syncResponse":true}`, "Content-Type", "application/json"); err != nil || resp.status != 200 {
		t.Fatalf("saving a mapping: %v %v", resp, err)
	}
	if out, err := b.command(nil, "validate", "--adapter", "caddyfile", "--config", p.config).CombinedOutput(); err != nil {
		t.Errorf("validate: %v\n%s", err, out)
	}
	for _, hook := range []string{"echo", "live"} {
		resp, err := tryRequest("POST", p.url+"/api/hooks/"+hook, `{"text":"hello"}`, "Authorization", "Bearer "+token)
		if err != nil || resp.status != 200 {
			t.Errorf("the server answers %s with %v %v", hook, resp, err)
		}
	}
	p.terminate(t)
	p.wantCleanExit(t)
}

func (b *caddyBinary) letsHeldCallersGo(t *testing.T, globals, drainTimeout string) {
	rn := startRunner(t, func(_ http.ResponseWriter, r *http.Request, _ turn) { <-r.Context().Done() })
	p := b.serve(t, globals, `
	hooks {
		enabled
		token `+token+`
		runner http `+rn.URL+`
		drain_timeout `+drainTimeout+`
	}
	hooks another {
		path /another
		drain_timeout `+drainTimeout+`
	}`)
	running := p.ask(`{"message":"one","syncResponse":true,"chatId":"c","timeoutSeconds":300}`)
	rn.next()
	queued := p.ask(`{"message":"two","syncResponse":true,"chatId":"c","timeoutSeconds":300}`)
	eventually(t, "both callers are held", func() bool {
		stacks, err := tryRequest("GET", p.admin+"/debug/pprof/goroutine?debug=2", "")
		return err == nil && strings.Count(stacks.body, "engine.(*Engine).Do(") == 2
	})
	p.terminate(t)
	for name, answer := range map[string]<-chan response{"running": running, "queued": queued} {
		select {
		case resp := <-answer:
			resp.wantError(t, 503)
			if resp.header.Get("Retry-After") == "" {
				t.Errorf("%s: got no Retry-After", name)
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("%s: the caller is still held", name)
		}
	}
	p.wantCleanExit(t)
}

func (b *caddyBinary) letsATurnEnd(t *testing.T) {
	release := make(chan struct{})
	rn := startRunner(t, func(w http.ResponseWriter, r *http.Request, _ turn) {
		select {
		case <-release:
			fmt.Fprint(w, "in the end")
		case <-r.Context().Done():
		}
	})
	p := b.serve(t, "", `
	hooks {
		enabled
		token `+token+`
		runner http `+rn.URL+`
		drain_timeout 1m
	}`)
	held := p.ask(`{"message":"one","syncResponse":true}`)
	rn.next()
	p.terminate(t)
	eventually(t, "nothing new is taken", func() bool {
		resp, err := tryRequest("POST", p.url+"/api/hooks/wake", `{"text":"a"}`, "Authorization", "Bearer "+token)
		return err != nil || resp.status == 503
	})
	close(release)
	select {
	case resp := <-held:
		if resp.status != 200 || resp.body != "in the end" {
			t.Errorf("got %d %q", resp.status, resp.body)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the caller is still held")
	}
	p.wantCleanExit(t)
}

// ask sends an agent request, and hands over the answer when it comes.
func (p *process) ask(body string) <-chan response {
	answer := make(chan response, 1)
	go func() {
		resp, err := tryRequest("POST", p.url+"/api/hooks/agent", body, "Authorization", "Bearer "+token)
		if err != nil {
			resp.body = err.Error()
		}
		answer <- resp
	}()
	return answer
}

// What caddyserver.com shows about a module is taken from these comments.
func TestModulesAreDocumented(t *testing.T) {
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

// sourceComments reads the comments on a type and its fields from the source.
func sourceComments(t *testing.T, kind reflect.Type) (doc string, fields map[string]string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(".", strings.TrimPrefix(kind.PkgPath(), modulePath), "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("found no source of %v: %v", kind, err)
	}
	for _, file := range files {
		parsed, err := parser.ParseFile(gotoken.NewFileSet(), file, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
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
							fields[name.Name] = field.Doc.Text()
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

// ourGoroutine matches the call of a function of this module, tests aside, in a stack trace.
var ourGoroutine = regexp.MustCompile(`caddy-hooks/caddyhooks(/[a-z/]+)?\.[^\n]*`)

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
		return "{\n\tadmin off\n\tpersist_config off\n\tlog {\n\t\tlevel PANIC\n\t}\n}\nhttp://127.0.0.1:" + freePort(t) + " {\n" + directives + "\n}\n"
	}
	if err := validate(t, config("respond ok")); err != nil {
		t.Fatal(err)
	}
	before := filesIn(t, dir)
	good := `
	hooks {
		enabled
		token ` + token + `
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

	if after := filesIn(t, dir); !slices.Equal(before, after) {
		t.Errorf("there were the files %v, and now %v", before, after)
	}
	eventually(t, "no goroutine is left", func() bool {
		var stacks bytes.Buffer
		if err := pprof.Lookup("goroutine").WriteTo(&stacks, 2); err != nil {
			t.Fatal(err)
		}
		return !ourGoroutine.Match(stacks.Bytes())
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
	rn := startRunner(t, func(w http.ResponseWriter, r *http.Request, _ turn) {
		select {
		case <-release:
			fmt.Fprint(w, "ok")
		case <-r.Context().Done():
		}
	})
	s := startSite(t, "hooks {\nenabled\ntoken "+token+"\nrunner http "+rn.URL+"\n}")
	if resp := s.adminRequest("PUT", "/hooks/mappings/live", `{"action":"wake"}`); resp.status != 200 {
		t.Fatalf("saving a mapping: %d %s", resp.status, resp.body)
	}
	held := make(chan response, 1)
	go func() {
		resp, _ := tryRequest("POST", s.url+"/api/hooks/agent", `{"message":"a","syncResponse":true}`, "Authorization", "Bearer "+token)
		held <- resp
	}()
	rn.next()

	other := s.caddyfile(s.site + " {\nhooks {\nenabled\ntoken another\nworkers 1\n}\n}")
	if err := validate(t, other); err != nil {
		t.Fatal(err)
	}
	select {
	case resp := <-held:
		t.Errorf("the held caller was answered %d %s", resp.status, resp.body)
	default:
	}
	if resp := s.post("/api/hooks/live", `{}`); resp.status != 200 {
		t.Errorf("the live mapping is answered %d %s", resp.status, resp.body)
	}
	close(release)
	if resp := <-held; resp.status != 200 || resp.body != "ok" {
		t.Errorf("the held caller was answered %d %s", resp.status, resp.body)
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

func filesIn(t *testing.T, dir string) []string {
	t.Helper()
	var files []string
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		files = append(files, path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// caddyfile is a Caddyfile with the given sites, and the options of the harness.
func (s *server) caddyfile(sites string) string {
	return fmt.Sprintf("{\n\tadmin %s\n\tpersist_config off\n\tlog {\n\t\tlevel PANIC\n\t}\n}\n%s\n", strings.TrimPrefix(s.admin, "http://"), sites)
}

func TestInstancesOfOneConfigurationGoSideBySide(t *testing.T) {
	s := startSite(t, `
	hooks {
		enabled
		token first
		hook same {
			action agent
			sync
			template "first {a}"
		}
	}
	hooks second {
		enabled
		token second
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
		resp := s.request("POST", test.path, `{"a":1}`, "Authorization", "Bearer "+test.token)
		if resp.status != test.status || test.body != "" && resp.body != test.body {
			t.Errorf("%s with %s: got %d %s", test.path, test.token, resp.status, resp.body)
		}
	}
	if resp := s.adminRequest("GET", "/hooks/instances", ""); strings.TrimSpace(resp.body) != `["default","second"]` {
		t.Errorf("got the instances %s", resp.body)
	}
}

func TestSiteOnTwoPortsIsOneInstance(t *testing.T) {
	release := make(chan struct{})
	rn := startRunner(t, func(w http.ResponseWriter, r *http.Request, _ turn) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
	})
	s := newServer(t)
	other := "http://127.0.0.1:" + freePort(t)
	s.site += ", " + other
	s.load("hooks {\nenabled\ntoken " + token + "\nworkers 1\nqueue_limit 1\nrunner http " + rn.URL + "\n}")
	ask := func(url string) response {
		t.Helper()
		resp, err := tryRequest("POST", url+"/api/hooks/agent", `{"message":"a"}`, "Authorization", "Bearer "+token)
		if err != nil {
			t.Fatal(err)
		}
		return resp
	}
	if resp := ask(s.url); resp.status != 202 {
		t.Errorf("the first port answers %d %s", resp.status, resp.body)
	}
	rn.next() // the only worker has it
	if resp := ask(other); resp.status != 202 {
		t.Errorf("the second port answers %d %s", resp.status, resp.body)
	}
	ask(s.url).wantError(t, 503)
	ask(other).wantError(t, 503)
	close(release)
	rn.next()
	if resp := s.adminRequest("GET", "/hooks/instances", ""); strings.TrimSpace(resp.body) != `["default"]` {
		t.Errorf("got the instances %s", resp.body)
	}
}

func TestSameNameWithAnotherConfigurationIsRefused(t *testing.T) {
	s := newServer(t)
	other := "http://127.0.0.1:" + freePort(t)
	for _, test := range []struct {
		name, one, two string
		good           bool
	}{
		{"the same", "hooks", "hooks", true},
		{"the same with a default spelled out", "hooks", "hooks default {\npath /api/hooks\nworkers 16\nmax_request 1MB\nrunner echo\nstore bolt\nmax_attempts 5\nretention 168h\n}", true},
		{"another name", "hooks", "hooks other {\nenabled\n}", true},
		{"another token", "hooks {\ntoken a\n}", "hooks {\ntoken b\n}", false},
		{"another runner", "hooks", "hooks {\nrunner echo {\ndelay 1s\n}\n}", false},
		{"another hook", "hooks x", "hooks x {\nhook y\n}", false},
		{"another path", "hooks", "hooks {\npath /y\n}", false},
	} {
		err := loadCaddyfile(s.caddyfile(s.site + " {\n" + test.one + "\n}\n" + other + " {\n" + test.two + "\n}"))
		if test.good && err != nil {
			t.Errorf("%s: %v", test.name, err)
		}
		if !test.good && (err == nil || !strings.Contains(err.Error(), "configured twice")) {
			t.Errorf("%s: got the error %v", test.name, err)
		}
	}
}

func TestReloadsUnderLoadKeepAnswering(t *testing.T) {
	release := make(chan struct{})
	rn := startRunner(t, func(w http.ResponseWriter, r *http.Request, tn turn) {
		if tn.text("message") == "held" {
			select {
			case <-release:
			case <-r.Context().Done():
			}
		}
		fmt.Fprint(w, tn.text("message"))
	})
	config := func(i int) string {
		return fmt.Sprintf("hooks {\nenabled\ntoken %s\nworkers %d\nrunner http %s\nhook extra-%d\n}", token, 8+i%3, rn.URL, i)
	}
	s := startSite(t, config(0))

	held := make(chan response, 1)
	go func() {
		resp, _ := tryRequest("POST", s.url+"/api/hooks/agent", `{"message":"held","syncResponse":true}`, "Authorization", "Bearer "+token)
		held <- resp
	}()
	rn.next()

	var answered atomic.Int64
	var accepted sync.Map // messages of runs that nobody waits for
	stop := make(chan struct{})
	var clients sync.WaitGroup
	stopClients := sync.OnceFunc(func() {
		close(stop)
		clients.Wait()
	})
	defer stopClients()
	for client := range 6 {
		clients.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				path, body, want := "wake", `{"text":"a"}`, 200
				text := fmt.Sprintf("%d-%d", client, i)
				switch i % 3 {
				case 1:
					path, body, want = "agent", `{"message":"`+text+`"}`, 202
				case 2:
					path, body = "agent", `{"message":"`+text+`","syncResponse":true}`
				}
				resp, err := tryRequest("POST", s.url+"/api/hooks/"+path, body, "Authorization", "Bearer "+token)
				if err != nil {
					// Caddy swaps its listening sockets, and the kernel resets connections that the old one had not
					// accepted yet, whatever the site does. What counts is that every answer is right.
					continue
				}
				if resp.status != want || i%3 == 2 && resp.body != text {
					t.Errorf("%s: got %d %s", body, resp.status, resp.body)
					return
				}
				if want == 202 {
					accepted.Store(text, true)
				}
				answered.Add(1)
			}
		})
	}
	for i := range 20 {
		seen := answered.Load()
		s.load(config(i + 1))
		eventually(t, "the new configuration is served", func() bool {
			return answered.Load() >= seen+12
		})
		eventually(t, "the hook of this reload is there", func() bool {
			resp, err := tryRequest("POST", fmt.Sprintf("%s/api/hooks/extra-%d", s.url, i+1), `{}`, "Authorization", "Bearer "+token)
			return err == nil && resp.status == 200
		})
	}
	stopClients()
	select {
	case resp := <-held:
		t.Errorf("the held caller was answered %d %s", resp.status, resp.body)
	default:
	}
	close(release)
	if resp := <-held; resp.status != 200 || resp.body != "held" {
		t.Errorf("the held caller was answered %d %s", resp.status, resp.body)
	}
	eventually(t, "all accepted runs are carried out", func() bool {
		for len(rn.turns) > 0 {
			accepted.Delete((<-rn.turns).text("message"))
		}
		left := 0
		accepted.Range(func(any, any) bool { left++; return true })
		return left == 0
	})
}
