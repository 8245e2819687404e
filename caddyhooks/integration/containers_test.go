package integration

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/pgtest"
)

const (
	containerDir   = root + "/examples/container"
	containerPage  = containerDir + "/README.md"
	kubernetesDir  = root + "/examples/kubernetes"
	kubernetesPage = kubernetesDir + "/README.md"
)

// The Containerfile builds a package, and nothing that the package is made of is kept from the build.
func TestContainerfileBuildsFromWhatIsNotIgnored(t *testing.T) {
	t.Parallel()
	build := regexp.MustCompile(`(?m)^RUN CGO_ENABLED=0 go build -trimpath -ldflags="-s -w" -o /out/caddy (\S+)$`).FindStringSubmatch(string(readFile(t, filepath.Join(containerDir, "Containerfile"))))
	if build == nil {
		t.Fatal("the Containerfile is not the one that this test was made for")
	}
	const files = `{{if .Module}}{{if .Module.Main}}{{$dir := .Dir}}{{range .GoFiles}}{{$dir}}/{{.}}{{"\n"}}{{end}}{{range .EmbedFiles}}{{$dir}}/{{.}}{{"\n"}}{{end}}{{end}}{{end}}`
	cmd := exec.Command("go", "list", "-deps", "-f", files, build[1])
	cmd.Dir, cmd.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	top, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	ignored, found := dockerignore(t), []string{"go.mod", "go.sum"}
	for _, file := range strings.Fields(string(out)) {
		relative, err := filepath.Rel(top, file)
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, relative)
	}
	for _, file := range found {
		if ignored(file) {
			t.Errorf("the build needs %s, which is ignored", file)
		}
	}
	if len(found) < 100 || !ignored("caddyhooks/app_test.go") || !ignored("examples/container/README.md") {
		t.Errorf("looked at %d files", len(found))
	}
}

// dockerignore reports whether a file, or a folder that it is in, is kept from a build.
func dockerignore(t *testing.T) func(path string) bool {
	t.Helper()
	var patterns []string
	for line := range strings.Lines(string(readFile(t, filepath.Join(containerDir, "Containerfile.dockerignore")))) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			patterns = append(patterns, line)
		}
	}
	return func(path string) bool {
		for ; path != "."; path = filepath.Dir(path) {
			for _, pattern := range patterns {
				name, anywhere := strings.CutPrefix(pattern, "**/")
				if match, _ := filepath.Match(name, filepath.Base(path)); path == pattern || anywhere && match {
					return true
				}
			}
		}
		return false
	}
}

// The container's command with its Caddyfile, in a process: the commands of the page work, and so does the health check.
func TestContainerExample(t *testing.T) {
	t.Parallel()
	containerfile := string(readFile(t, filepath.Join(containerDir, "Containerfile")))
	e := newContainer(t, filepath.Join(containerDir, "Caddyfile"), containerfile, map[string]string{"hooks_token": "only-for-trying-it-out"}, "/run/secrets")
	p := e.deployment.Start(t)
	e.wantPage(t, containerPage)
	check := jsonWords(t, `HEALTHCHECK .* CMD \["caddy", (.+)\]`, containerfile)
	healthy := func() bool {
		return e.deployment.Command(nil, append(check, "--address", e.deployment.Admin)...).Run() == nil
	}
	if !healthy() {
		t.Error("the health check fails")
	}
	p.Terminate(t)
	p.WantCleanExit(t)
	if healthy() {
		t.Error("the health check succeeds without Caddy")
	}
}

// A pod's Caddy with a real database: probes answer as Kubernetes needs it.
func TestKubernetesExample(t *testing.T) {
	t.Parallel()
	database := pgtest.New(t, pgtest.Config{Listen: "127.0.0.1"})
	database.Exec(t, "postgres", "CREATE DATABASE hooks")
	e := newContainer(t, filepath.Join(kubernetesDir, "Caddyfile"), string(readFile(t, filepath.Join(containerDir, "Containerfile"))),
		map[string]string{"token": hookstest.Token, "dsn": database.TCP("postgres", pgtest.Password, "hooks")}, "/run/secrets/hooks")
	e.deployment.Start(t)
	e.wantPage(t, kubernetesPage)

	deployment := string(readFile(t, filepath.Join(kubernetesDir, "deployment.yaml")))
	probe := func(name string) int {
		t.Helper()
		path := regexp.MustCompile(`(?s)\b` + name + `:\s+httpGet:\s+path: (\S+)\s+port: http\s`).FindStringSubmatch(deployment)
		if path == nil {
			t.Fatalf("the deployment has no %s", name)
		}
		resp, err := hookstest.TryRequest("GET", e.deployment.URL+path[1], "")
		if err != nil {
			t.Fatal(err)
		}
		return resp.Status
	}
	if live, ready := probe("livenessProbe"), probe("readinessProbe"); live != 200 || ready != 200 {
		t.Errorf("live is %d, ready is %d", live, ready)
	}
	database.Stop("fast")
	hookstest.Eventually(t, "the pod is not ready without its database", func() bool { return probe("readinessProbe") == 503 })
	if live := probe("livenessProbe"); live != 200 {
		t.Errorf("without the database live is %d, and the pod would be restarted", live)
	}
	if err := database.Start(); err != nil {
		t.Fatal(err)
	}
	hookstest.Eventually(t, "the pod is ready when its database is back", func() bool { return probe("readinessProbe") == 200 })
}

// container is what would be in one: the program with a Caddyfile, secrets as files, and ports.
type container struct {
	deployment *hookstest.Deployment
	ports      *strings.Replacer
}

func newContainer(t *testing.T, caddyfile, containerfile string, secrets map[string]string, mounted string) *container {
	t.Helper()
	dir := t.TempDir()
	d := &hookstest.Deployment{Binary: hookstest.NewBinary(t), Config: filepath.Join(dir, "Caddyfile"), Admin: "127.0.0.1:" + hookstest.FreePort(t)}
	site, metrics := "127.0.0.1:"+hookstest.FreePort(t), "127.0.0.1:"+hookstest.FreePort(t)
	d.URL = "http://" + site
	text := strings.NewReplacer("http://:8080", d.URL, "http://:8081", "http://"+metrics, mounted, dir,
		"persist_config off", "admin "+d.Admin+"\n\tpersist_config off").Replace(string(readFile(t, caddyfile)))
	secrets["Caddyfile"] = text
	for name, data := range secrets {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	start := jsonWords(t, `(?m)^CMD \["caddy", (.+)\]`, containerfile)
	for i, arg := range start {
		start[i] = strings.ReplaceAll(arg, "/etc/caddy", dir)
	}
	d.Prepare = func(cmd *exec.Cmd) { cmd.Args = append(cmd.Args[:1], start...) }
	return &container{d, strings.NewReplacer("127.0.0.1:8080", site, "127.0.0.1:8081", metrics)}
}

// jsonWords are the words of an instruction of a Containerfile in JSON.
func jsonWords(t *testing.T, pattern, containerfile string) (words []string) {
	t.Helper()
	found := regexp.MustCompile(pattern).FindStringSubmatch(containerfile)
	if found == nil {
		t.Fatalf("the Containerfile has no %s", pattern)
	}
	for word := range strings.SplitSeq(found[1], ", ") {
		words = append(words, strings.Trim(word, `"`))
	}
	return words
}

// wantPage runs the commands of a page.
func (c *container) wantPage(t *testing.T, page string) {
	t.Helper()
	blocks, found := fences(t, page), 0
	for i, block := range blocks {
		if block.language == "sh" {
			found++
			wantOutput(t, blocks, i, c.ports.Replace(block.text))
		}
	}
	if found == 0 {
		t.Error("the page has no command")
	}
}
