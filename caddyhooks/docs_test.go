package caddyhooks_test

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

const root = ".."

// Caddyfile.example claims to show every option.
func TestExampleShowsEveryOption(t *testing.T) {
	t.Parallel()
	grammar, err := os.ReadFile("caddyfile.go")
	if err != nil {
		t.Fatal(err)
	}
	example, err := os.ReadFile(filepath.Join(root, "Caddyfile.example"))
	if err != nil {
		t.Fatal(err)
	}
	options := regexp.MustCompile(`(?m)^\t+case ((?:"[a-z_]+"(?:, )?)+):$`).FindAllStringSubmatch(string(grammar), -1)
	if len(options) < 30 {
		t.Fatalf("found only %d options in the grammar", len(options))
	}
	for _, m := range options {
		for _, option := range regexp.MustCompile(`[a-z_]+`).FindAllString(m[1], -1) {
			if !regexp.MustCompile(`(?m)^\s*(# )?` + option + `\b`).Match(example) {
				t.Errorf("Caddyfile.example does not show %s", option)
			}
		}
	}
}

// So it does for the modules that come with it.
func TestExampleShowsEveryModule(t *testing.T) {
	t.Parallel()
	example, err := os.ReadFile(filepath.Join(root, "Caddyfile.example"))
	if err != nil {
		t.Fatal(err)
	}
	shows := func(what, pattern string) {
		if !regexp.MustCompile(`(?m)^\s*(# \s*)?` + pattern + `\b`).Match(example) {
			t.Errorf("Caddyfile.example does not show %s", what)
		}
	}
	directives := map[string]string{"runners": "runner ", "stores": "store ", "channels": `channel \w+ `}
	options, modules := 0, 0
	for dir, directive := range directives {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			source, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range regexp.MustCompile(`"hooks\.`+dir+`\.([a-z]+)"`).FindAllStringSubmatch(string(source), -1) {
				modules++
				shows(m[0], directive+m[1])
			}
			for _, m := range regexp.MustCompile(`(?m)^//\t\t([a-z_]+) `).FindAllStringSubmatch(string(source), -1) {
				options++
				shows(m[1]+" of "+file, m[1])
			}
		}
	}
	if modules < 11 || options < 20 {
		t.Errorf("found only %d modules with %d options", modules, options)
	}
}
