package integration

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/realtest"
)

// hostileMarkdown are pieces of texts that act on others, or hide it from those who look for it.
var hostileMarkdown = []string{
	"@octocat", "@acme/team", "@a\n", "#5", "acme/widgets#5", "GH-5", "a@b.c", "&#64;", "&commat;", "<b>", "</b>", "<!--", "-->", "<pre>", "<script>", "<details>\n", "<?",
	"<![CDATA[", "]]>", "![a](b)", "![a][b]", "```", "````", "~~~", "`", "``", "```\n", "\n```", "\n", "\n\n", "  ", "    ", "\t", "- ", "1. ", "> ", "# ", "$$", "---", "|", "a",
	"https://a.b/", "https://github.com/a/b/issues/1", "www.a.b/", "<https://a.b/@x>", "(", ")", "[", "]", "](", "*", "_", "~~", "\\", "/close\n", ": ", "[^1]", "[^1]: ", "\u00a0",
}

// What an agent writes mentions nobody, refers to nothing, and has no HTML and no pictures, as programs see it that others wrote for
// Markdown as GitHub has it.
func TestCommentsActOnNobody(t *testing.T) {
	t.Parallel()
	const seed, texts = 29, 5000
	var raw, posted []string
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var comment struct{ Body string }
		if err := json.NewDecoder(r.Body).Decode(&comment); err != nil {
			t.Error(err)
		}
		posted = append(posted, comment.Body)
		_, _ = io.WriteString(w, `{"id":1,"body":"x"}`)
	}))
	defer service.Close()
	channel := loadChannel(t, fmt.Sprintf("github x {\n url %s\n}", service.URL))
	random := rand.New(rand.NewPCG(seed, seed))
	for range texts {
		text := "x "
		for range 1 + random.IntN(14) {
			text += hostileMarkdown[random.IntN(len(hostileMarkdown))]
		}
		raw = append(raw, text)
		if err := channel.Send(t.Context(), &engine.Delivery{ID: "msg_1_0", To: "acme/widgets#7", Body: text[random.IntN(2)*2:] + " x"}); err != nil {
			t.Fatalf("%q: %v", text, err)
		}
	}
	before, after := actsIn(t, raw), actsIn(t, posted)
	counts := map[string]int{}
	for i, found := range after {
		if len(found) > 0 {
			t.Errorf("seed %d: %q\nis posted as %q,\nwhich has %q", seed, raw[i], posted[i], found)
		}
		for _, kind := range before[i] {
			counts[kind]++
		}
	}
	for _, kind := range []string{"mention", "issue", "html", "image"} {
		if counts[kind] < texts/50 {
			t.Errorf("only %d texts had a thing of the kind %s, which proves little", counts[kind], kind)
		}
	}
	t.Logf("texts that acted before: %v", counts)
}

// actsIn returns for each text what acts in it; acts.mjs says how.
func actsIn(t *testing.T, texts []string) (found [][]string) {
	t.Helper()
	script, err := os.ReadFile("testdata/channel-types/acts.mjs")
	if err != nil {
		t.Fatal(err)
	}
	input, _ := json.Marshal(texts)
	cmd := realtest.Command(t, "node", "--input-type=module", "--eval", string(script))
	cmd.Dir = installChannelTypes(t)
	cmd.Stdin = strings.NewReader(string(input))
	var complaints strings.Builder
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("acts.mjs: %v\n%s", err, complaints.String())
	}
	if err := json.Unmarshal(out, &found); err != nil || len(found) != len(texts) {
		t.Fatalf("acts.mjs answered for %d of %d texts: %v", len(found), len(texts), err)
	}
	return found
}
