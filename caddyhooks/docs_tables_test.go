package caddyhooks_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/cli"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/configschema"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/observe"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/settings"
)

// The pages name every module, and the tests of the Caddyfile know it.
func TestReferenceNamesEveryModule(t *testing.T) {
	pages := map[string]string{"runner": "reference/runners.md", "channel": "reference/channels.md", "store": "operate/deploy.md"}
	var blocks []string
	for _, b := range caddyfileBlocks {
		blocks = append(blocks, blockName(b.within[len(b.within)-1]))
	}
	for directive, page := range pages {
		text := readPage(t, page)
		for _, info := range caddy.GetModules("hooks." + directive + "s") {
			name := info.ID.Name()
			if !configschema.IsOurs(reflect.TypeOf(info.New()).Elem()) {
				continue
			}
			if !strings.Contains(text, directive+" "+name) && !strings.Contains(text, "| `"+name+"` |") {
				t.Errorf("%s does not name the %s %s", page, directive, name)
			}
			if block := directive + " " + name; !slices.Contains(blocks, block) || blockTypes[block] == nil {
				t.Errorf("%s is missing in caddyfileBlocks of caddyfile_mistakes_test.go, or in blockTypes of docs_reference_test.go", block)
			}
		}
	}
}

// The page about authentication has a line for every scheme, with the age of its signatures.
func TestReferenceOfSchemes(t *testing.T) {
	lines := strings.Split(readPage(t, "reference/authentication.md"), "\n")
	for _, scheme := range settings.Schemes {
		age := strings.NewReplacer("1m0s", "1 minute", "3m0s", "3 minutes", "5m0s", "5 minutes", "0s", "").Replace(scheme.Tolerance.String())
		if !slices.ContainsFunc(lines, func(line string) bool {
			return strings.HasPrefix(line, "|") && strings.Contains(line, age) && regexp.MustCompile("`(auth )?"+scheme.Name+"[ `]").MatchString(line)
		}) {
			t.Errorf("no line of a table has %s and its age, %q", scheme.Name, age)
		}
	}
}

func TestEverySenderHasARecipe(t *testing.T) {
	for _, sender := range settings.Senders {
		if _, err := os.Stat(filepath.Join(root, "examples", "senders", sender.Name, "Caddyfile")); err != nil {
			t.Errorf("no recipe for %s: %v", sender.Name, err)
		}
	}
}

// Two pages list the settings that can be changed while Caddy runs.
func TestReferenceListsEverySetting(t *testing.T) {
	lists := map[string]*regexp.Regexp{
		"reference/admin-api.md":    regexp.MustCompile("(?m)^.*`PATCH /hooks/settings`.*$"),
		"reference/command-line.md": regexp.MustCompile("(?m)^The settings are .*$"),
	}
	for page, list := range lists {
		line := list.FindString(readPage(t, page))
		for _, setting := range settings.AllSettings {
			directive := setting.CaddyfileDirective(new(settings.Settings)).Word
			if !strings.Contains(line, "`"+setting.JSONName()+"`") && !strings.Contains(line, "`"+directive+"`") {
				t.Errorf("%s does not list %s: %q", page, directive, line)
			}
		}
	}
}

func readPage(t *testing.T, page string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("docs", page))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestReferenceOfTheCommandLine(t *testing.T) {
	root := &cobra.Command{Use: "hooks"}
	cli.HooksCommand(root)
	var table strings.Builder
	table.WriteString("| verb | what it does | flags |\n|---|---|---|\n")
	var add func(cmd *cobra.Command, path string)
	add = func(cmd *cobra.Command, path string) {
		if cmd.Hidden {
			return
		}
		path = strings.TrimSpace(path + " " + cmd.Name())
		if cmd.HasSubCommands() {
			for _, sub := range cmd.Commands() {
				add(sub, path)
			}
			return
		}
		var flags []string
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if !f.Hidden && f.Name != "help" && root.PersistentFlags().Lookup(f.Name) == nil {
				flags = append(flags, "`--"+f.Name+"`")
			}
		})
		fmt.Fprintf(&table, "| `%s` | %s | %s |\n", path, cell(cmd.Short), strings.Join(flags, " "))
	}
	for _, cmd := range root.Commands() {
		add(cmd, "")
	}
	wantGenerated(t, "reference/command-line.md", "verbs", table.String())
}

var describedMetric = regexp.MustCompile(`fqName: "([^"]+)", help: "((?:[^"\\]|\\.)*)", (?:unit: "[^"]*", )?constLabels: \{\}, variableLabels: \{([^}]*)\}`)

func TestReferenceOfMetrics(t *testing.T) {
	var table strings.Builder
	table.WriteString("| metric | type | labels | meaning |\n|---|---|---|---|\n")
	row := func(desc *prometheus.Desc, kind string) {
		m := describedMetric.FindStringSubmatch(desc.String())
		if m == nil {
			t.Fatalf("cannot read %s", desc)
		}
		help, err := strconv.Unquote(`"` + m[2] + `"`)
		if err != nil {
			t.Fatal(err)
		}
		var labels []string
		for label := range strings.SplitSeq(m[3], ",") {
			if label != "hooks_instance" {
				labels = append(labels, "`"+label+"`")
			}
		}
		fmt.Fprintf(&table, "| `%s` | %s | %s | %s |\n", m[1], kind, strings.Join(labels, ", "), cell(help))
	}
	for _, family := range observe.NewFamilies().All() {
		descs := make(chan *prometheus.Desc, 1)
		family.Describe(descs)
		kind := "counter"
		if _, ok := family.(*prometheus.HistogramVec); ok {
			kind = "histogram"
		}
		row(<-descs, kind)
	}
	for _, desc := range observe.Gauges {
		row(desc, "gauge")
	}
	wantGenerated(t, "reference/metrics-and-traces.md", "metrics", table.String())
}

// TestReferenceOfErrors lists the answers with an error that the source has as a literal, by status.
func TestReferenceOfErrors(t *testing.T) {
	answers := make(map[string][]string)
	inspectSource(t, func(path string, node ast.Node) {
		literal, ok := node.(*ast.CompositeLit)
		if !ok || !strings.HasPrefix(path, "internal/ingress/") && !strings.HasPrefix(path, "internal/intake/") {
			return
		}
		if kind, ok := literal.Type.(*ast.SelectorExpr); !ok || kind.Sel.Name != "Error" {
			return
		}
		var status, message string
		for _, element := range literal.Elts {
			pair, ok := element.(*ast.KeyValueExpr)
			if !ok {
				continue
			}
			switch key := pair.Key.(*ast.Ident); key.Name {
			case "Status":
				if value, ok := pair.Value.(*ast.SelectorExpr); ok {
					status = value.Sel.Name
				}
			case "Message":
				message = textIn(pair.Value)
			}
		}
		if code := statusCode(status); code != 0 && strings.Trim(message, " ….") != "" {
			answers[strconv.Itoa(code)] = append(answers[strconv.Itoa(code)], message)
		}
	})
	var table strings.Builder
	table.WriteString("| status | `errorMessage` |\n|---|---|\n")
	for _, status := range slices.Sorted(maps.Keys(answers)) {
		slices.Sort(answers[status])
		for _, message := range slices.Compact(answers[status]) {
			fmt.Fprintf(&table, "| %s | %s |\n", status, cell(message))
		}
	}
	wantGenerated(t, "reference/http-api.md", "errors", table.String())
}

// TestReferenceOfLogs lists the lines that the program logs and that the page does not explain, by level.
func TestReferenceOfLogs(t *testing.T) {
	lines := make(map[string][]string)
	inspectSource(t, func(path string, node ast.Node) {
		call, ok := node.(*ast.CallExpr)
		if !ok || len(call.Args) == 0 || strings.HasPrefix(path, "internal/cli/") || strings.HasPrefix(path, "internal/terminal/") {
			return
		}
		method, ok := call.Fun.(*ast.SelectorExpr)
		if !ok || !slices.Contains([]string{"Error", "Warn", "Info", "Debug"}, method.Sel.Name) {
			return
		}
		if text := textIn(call.Args[0]); strings.Trim(text, " …") != "" {
			lines[method.Sel.Name] = append(lines[method.Sel.Name], text)
		}
	})
	before, _, _ := strings.Cut(readPage(t, "reference/logs.md"), "<!-- lines:")
	explained := func(line string) bool {
		return slices.ContainsFunc(regexp.MustCompile("[|,] `([^`]+)`").FindAllStringSubmatch(before, -1), func(m []string) bool {
			begin, cut := strings.CutSuffix(m[1], "…")
			return line == m[1] || cut && strings.HasPrefix(line, begin)
		})
	}
	var list strings.Builder
	for _, level := range []string{"Error", "Warn", "Info", "Debug"} {
		fmt.Fprintf(&list, "\n%s:\n\n", level)
		slices.Sort(lines[level])
		for _, line := range slices.Compact(lines[level]) {
			if !explained(line) {
				fmt.Fprintf(&list, "- `%s`\n", line)
			}
		}
	}
	wantGenerated(t, "reference/logs.md", "lines", list.String())
}

// inspectSource visits the source of the program.
func inspectSource(t *testing.T, visit func(path string, node ast.Node)) {
	t.Helper()
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() && slices.Contains([]string{"integration", "hookstest", "pgtest", "realtest", "storetest", "testdata"}, entry.Name()) {
			return fs.SkipDir
		}
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(node ast.Node) bool {
			visit(filepath.ToSlash(path), node)
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

var formatVerb = regexp.MustCompile(`%[-+# 0-9.]*[a-zA-Z]`)

// textIn is the text of an expression, with … for what is known only when it is evaluated.
func textIn(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		if text, err := strconv.Unquote(e.Value); err == nil {
			return text
		}
	case *ast.BinaryExpr:
		return textIn(e.X) + textIn(e.Y)
	case *ast.CallExpr:
		if method, ok := e.Fun.(*ast.SelectorExpr); ok && method.Sel.Name == "Sprintf" {
			return formatVerb.ReplaceAllString(textIn(e.Args[0]), "…")
		}
	}
	return "…"
}

// statusCode is the number of a constant of net/http such as StatusNotFound.
func statusCode(name string) int {
	for code := 400; code < 600; code++ {
		if text := http.StatusText(code); text != "" && strings.EqualFold(name, "Status"+strings.NewReplacer(" ", "", "-", "").Replace(text)) {
			return code
		}
	}
	return 0
}
