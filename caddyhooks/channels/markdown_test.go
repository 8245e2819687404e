package channels

import (
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestMarkdownActsOnNobody(t *testing.T) {
	t.Parallel()
	// In the wanted texts, ␣ is the space of no width.
	for text, want := range map[string]string{
		"**bold** _it_ [link](https://example.com/a_b) - [ ] x\n\n| a | b |\n|---|---|\n":          "",
		"# Heading\n1. one\n2. two\n> quote\n1 < 2 && 3 > 2, a <- b, x<=y, R&D":                    "",
		"@octocat and @acme/team, a@example.com":                                                   "@␣octocat and @␣acme/team, a@␣example.com",
		"_@octocat_ \\@octocat **x**@octocat":                                                      "_@␣octocat_ \\@␣octocat **x**@␣octocat",
		"&#64;octocat &#x40;a &commat;a &num;5 &fjlig;x &amp; &lt;":                                "&␣#␣64;octocat &␣#x40;a &␣commat;a &␣num;5 &␣fjlig;x &amp; &lt;",
		"fixes #5, acme/widgets#12 GH-7 gl-7 !8 xGH-7 A!":                                          "fixes #␣5, acme/widgets#␣12 GH-␣7 gl-␣7 !␣8 xGH-7 A!",
		"[https://a.b/GH-5 https://a.b/(x)#5 [a](https://a.b)#5 <https://a.b>#5 https://a.b&#64;x": "[␣https://a.b/GH%2D5 https://a.b/(x)#5 [a](https://a.b)#␣5 <https://a.b>#␣5 https://a.b&␣#␣64;x",
		"xhttps://a.b/#5": "xhttps://a.b/#␣5",
		"[issue:5] [work_item:5] [note: x](https://x.y)":                       "[␣issue:5] [␣work_item:5] [␣note: x](https://x.y)",
		"<b>x</b> <!-- hidden --> <?x?> <https://example.com/x> <https://a b>": "<␣b>x<␣/b> <␣!-- hidden --> <␣?x?> <https://example.com/x> <␣https://a b>",
		"`Vec<T>` and `@x`": "`Vec<␣T>` and `@␣x`",
		"![pixel](https://evil.example/?q=secret) ![a][b]":                                      "!␣[pixel](https://evil.example/?q=secret) !␣[a][b]",
		"/close\n  /assign @me\n> /merge\n/usr/bin/env\n/\na /close":                            "␣/close\n  ␣/assign @␣me\n> ␣/merge\n/usr/bin/env\n/\na /close",
		"https://example.com/@me?a=1&b=2#3 HTTPS://a.b/@x (https://a.b)@octocat":                "https://example.com/%40me?a=1&b=2#3 HTTPS://a.b/%40x (https://a.b)@␣octocat",
		"https://github.com/a/b/issues/5 https://www.GitHub.com/a/b/pull/5":                     "https://redirect.github.com/a/b/issues/5 https://redirect.GitHub.com/a/b/pull/5",
		"https://github.com/a/b/blob/x https://github.com/a https://notgithub.com/a/b/issues/5": "",
		"https://linear.app/acme/profiles/ann https://linear.app/acme/issue/ENG-1":              "https:␣//linear.app/acme/profiles/ann https://linear.app/acme/issue/ENG-1",
		"```python\n@app.get(\"/x\")\n<b>\n/close\n```\n@me":                                    "```python\n@app.get(\"/x\")\n<b>\n␣/close\n```\n@␣me",
		"~~~ a`b\n@x\n```\n@y\n ~~~~ \n@z":                                                      "~~~ a`b\n@x\n```\n@y\n ~~~~ \n@␣z",
		"````\n```\n@x\n````\n@y":                                                               "````\n```\n@x\n````\n@␣y",
		"```\n@x\n    ```\n@y\n``` x\n@z":                                                       "",
		// What only looks like code, or ends sooner than it seems to.
		"- a\n  ```\n@x":      "- a\n  ```\n@␣x",
		"``` a`b\n@x":         "``` a`b\n@␣x",
		"``\n@x":              "``\n@␣x",
		"---\n```\n---\n@x":   "---\n```\n---\n@␣x",
		"$$\n```\n$$\n@x":     "$$\n```\n$$\n@␣x",
		"> ```\n@x":           "> ```\n@␣x",
		"<pre>\n@x\n</pre>":   "<␣pre>\n@␣x\n<␣/pre>",
		"<!--\n```\n-->\n@x ": "<␣!--\n```\n-->\n@x ",
	} {
		if want == "" {
			want = text
		}
		if got := strings.ReplaceAll(quietMarkdown(text), zeroWidthSpace, "␣"); got != want {
			t.Errorf("%q\nbecame %q\nwant   %q", text, got, want)
		}
	}
}

// FuzzQuietMarkdown checks that nothing that acts is left outside of code, that a reader sees what was written, and that a longer text
// does not become shorter, as splitters want it.
func FuzzQuietMarkdown(f *testing.F) {
	for _, text := range []string{"@a", "```\n@a\n```\n@b", "~~~\n/close\n", "<b>", "<https://a>", "https://github.com/a/b/issues/1", "&#64;a", "![a](b)", "- ```\n@a", "\u200b@a"} {
		f.Add(text)
	}
	acts := regexp.MustCompile(`(?i)@[a-z0-9]|(?:^|[^a-z0-9])#[0-9]|<[a-z!?/]|!\[|&#|&commat;`)
	command := regexp.MustCompile(`(?m)^[ \t>]*/[A-Za-z0-9_-]+(?:[ \t]|$)`)
	f.Fuzz(func(t *testing.T, text string) {
		text = cleanText(text)
		quiet := quietMarkdown(text)
		if command.MatchString(quiet) {
			t.Fatalf("%q has a command", quiet)
		}
		if !strings.Contains(quiet, "```") && !strings.Contains(quiet, "~~~") && !strings.Contains(strings.ToLower(quiet), "http") && !strings.Contains(quiet, "&") {
			if found := acts.FindString(quiet); found != "" {
				t.Fatalf("%q acts: %q", quiet, found)
			}
		}
		if !strings.Contains(strings.ToLower(text), "http") && strings.ReplaceAll(quiet, zeroWidthSpace, "") != strings.ReplaceAll(text, zeroWidthSpace, "") {
			t.Fatalf("%q became %q", text, quiet)
		}
		for n := range text {
			if utf8.RuneStart(text[n]) && len(text) < 500 && quietLength(text[:n]) > quietLength(text) {
				t.Fatalf("the first %d bytes of %q are longer than all of it", n, text)
			}
		}
	})
}
