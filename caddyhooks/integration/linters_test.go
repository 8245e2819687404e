package integration

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/integration/internal/gotool"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/integration/internal/npmtest"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/realtest"
)

// Linters that others wrote look at the files of the examples. Each of them must also find a mistake that is made on purpose, so
// that a linter that looks at nothing is noticed.

func TestYAMLOfTheExamplesIsTidy(t *testing.T) {
	t.Parallel()
	examples := filepath.Join(root, "examples")
	lint(t, "yamllint", "--strict", "-c", filepath.Join(examples, ".yamllint"), examples)
	wantLintError(t, "too many spaces", "yamllint", "--strict", "-c", filepath.Join(examples, ".yamllint"),
		edited(t, filepath.Join(examples, "prometheus", "prometheus.yml"), "scrape_interval: ", "scrape_interval:   "))
}

func TestPromtoolLikesTheAlerts(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(root, "examples", "prometheus")
	lint(t, "promtool", "check", "config", "--lint-fatal", filepath.Join(dir, "prometheus.yml")) // and the rules that it names
	wantLintError(t, "could not parse expression", "promtool", "check", "rules", edited(t, filepath.Join(dir, "alerts.yml"), "== 0", "== = 0"))
	// That the cases in alerts_test.yml hold is told by a command in README.md. Here: they notice an alert that comes too early.
	early := t.TempDir()
	if err := os.CopyFS(early, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(edited(t, filepath.Join(dir, "alerts.yml"), "for: 2m", "for: 0m"), filepath.Join(early, "alerts.yml")); err != nil {
		t.Fatal(err)
	}
	wantLintError(t, "HooksTargetDown", "promtool", "test", "rules", filepath.Join(early, "alerts_test.yml"))
}

// lint runs a linter, which must find nothing.
func lint(t *testing.T, linter string, args ...string) {
	t.Helper()
	if out, err := realtest.Command(t, linter, args...).CombinedOutput(); err != nil {
		t.Errorf("%s: %v\n%s", filepath.Base(linter), err, bytes.TrimSpace(out))
	}
}

// wantLintError runs a linter, which must find a mistake.
func wantLintError(t *testing.T, words, linter string, args ...string) {
	t.Helper()
	out, err := realtest.Command(t, linter, args...).CombinedOutput()
	if err == nil || !bytes.Contains(out, []byte(words)) {
		t.Errorf("%s does not find a mistake: %v\n%s", filepath.Base(linter), err, bytes.TrimSpace(out))
	}
}

// edited is a copy of a file, of the same name, in which a text was replaced wherever it stands.
func edited(t *testing.T, file, from, to string) string {
	t.Helper()
	text := string(readFile(t, file))
	if !strings.Contains(text, from) {
		t.Fatalf("%s has no %q", file, from)
	}
	copied := filepath.Join(t.TempDir(), filepath.Base(file))
	if err := os.WriteFile(copied, []byte(strings.ReplaceAll(text, from, to)), 0o600); err != nil {
		t.Fatal(err)
	}
	return copied
}

var (
	goLinters         = gotool.Tools("testdata/linters")
	dockerfileLinters = npmtest.Packages("testdata/dockerfile-linters")
	openapiLinter     = npmtest.Packages("testdata/openapi-linter")
)

func TestLintersLikeTheContainerfile(t *testing.T) {
	t.Parallel()
	packages := dockerfileLinters(t)
	file := filepath.Join(containerDir, "Containerfile")
	bad := edited(t, file, "\nEXPOSE ", "\nEXPSE ")
	utils := filepath.Join(packages, "node_modules", ".bin", "dockerfile-utils")
	lint(t, utils, "lint", file)
	wantLintError(t, "Unknown instruction: EXPSE", utils, "lint", bad)
	older := filepath.Join(packages, "node_modules", ".bin", "dockerfilelint")
	lint(t, older, file)
	wantLintError(t, "Invalid Command", older, bad)
}

func TestRedoclyLikesTheOpenAPIDocuments(t *testing.T) {
	t.Parallel()
	redocly := []string{"REDOCLY_TELEMETRY=off", "REDOCLY_SUPPRESS_UPDATE_NOTICE=true", filepath.Join(openapiLinter(t), "node_modules", ".bin", "redocly"),
		"lint", "--config=" + filepath.Join("testdata", "openapi-linter", "redocly.yaml")}
	for _, args := range [][]string{{"hooks", "openapi"}, {"hooks", "openapi", "--admin"}} {
		file := filepath.Join(t.TempDir(), "openapi.json")
		document, err := hookstest.NewBinary(t).Command(nil, args...).Output()
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, document, 0o600); err != nil {
			t.Fatal(err)
		}
		lint(t, "env", append(redocly, file)...)
		wantLintError(t, "operation-operationId-unique", "env", append(redocly, edited(t, file, `"operationId": "cancelRun"`, `"operationId": "run"`))...)
	}
}

// compose-go reads files for Docker Compose.
func TestComposeReadsTheComposeFiles(t *testing.T) {
	t.Parallel()
	compose := goLinter(t, "cmd")
	files, err := filepath.Glob(filepath.Join(root, "examples", "*", "compose.yaml"))
	if err != nil || len(files) < 2 {
		t.Fatalf("found %v, %v", files, err)
	}
	for _, file := range files {
		lint(t, compose, "-no-interpolation", file)
	}
	wantLintError(t, "services.caddy.readonly", compose, edited(t, filepath.Join(containerDir, "compose.yaml"), "read_only: ", "readonly: "))
}

func TestLintersLikeTheManifests(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join(kubernetesDir, "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var manifests []string
	for _, file := range files {
		switch filepath.Base(file) {
		case "kustomization.yaml", "servicemonitor.yaml": // kinds of others
		default:
			manifests = append(manifests, file)
		}
	}
	if len(manifests) < 5 {
		t.Fatalf("found %v", manifests)
	}
	deployment := filepath.Join(kubernetesDir, "deployment.yaml")
	lint(t, goLinter(t, "strictkube"), manifests...)
	wantLintError(t, `unknown field "spec.replicaz"`, goLinter(t, "strictkube"), edited(t, deployment, "replicas: ", "replicaz: "))
	lint(t, goLinter(t, "kube-score"), append([]string{"score"}, manifests...)...)
	wantLintError(t, "CRITICAL", goLinter(t, "kube-score"), "score", edited(t, deployment, "readOnlyRootFilesystem: true", "readOnlyRootFilesystem: false"))
}

func goLinter(t *testing.T, name string) string {
	t.Helper()
	dir := goLinters(t)
	return filepath.Join(dir, name)
}
