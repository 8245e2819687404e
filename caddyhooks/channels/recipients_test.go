package channels

import (
	"slices"
	"strings"
	"testing"
)

func TestChannelsAllowTheChatsOfTheirConfiguration(t *testing.T) {
	t.Setenv("CHANNEL_CHAT", "team")
	for _, tc := range []struct {
		config          string
		allowed, others []string
	}{
		{"telegram x {\n allow_to 42 -100/7\n}", []string{"42", "42/7", "-100/7"}, []string{"-100", "-100/8", "-100/77", "43", "43/7", "/7", "142"}},
		{"telegram x {\n allow_to -100* @our_*\n}", []string{"-100", "-1005", "-1005/7", "@our_", "@our_x/7"}, []string{"-10", "1-100", "@Our_x", "42/-100"}},
		{"telegram x {\n allow_to 42/*\n}", []string{"42/7", "42/"}, []string{"43/7", "421/7"}},
		{"slack x {\n allow_to C0123456789\n}", []string{"C0123456789", "C0123456789/1700000000.000100"}, []string{"#general", "C0123456780", "c0123456789", "C9/C0123456789"}},
		{"slack x {\n allow_to C1/1700000000.000100\n}", []string{"C1/1700000000.000100"}, []string{"C1", "C1/1700000000.000101", "C2/1700000000.000100"}},
		{"slack x {\n allow_to C* \"#team-*\"\n}", []string{"C1", "#team-a"}, []string{"U1", "#team", "D1C", "#general"}},
		{"discord x {\n allow_to 123456789012345678\n}", []string{"123456789012345678"}, []string{"123456789012345679"}},
		{"discord x {\n allow_to 12345*\n}", []string{"123456789012345678"}, []string{"223456789012345679"}},
		{"matrix http://x x {\n allow_to !a:b.org\n}", []string{"!a:b.org", "!a:b.org/$x/y"}, []string{"#a:b.org", "!A:b.org", "!c:d/!a:b.org"}},
		{"matrix http://x x {\n allow_to !*:b.org\n}", []string{"!a:b.org", "!b:b.org"}, []string{"#a:b.org", "!a:b.org.uk", "!a:B.org"}},
		{"webhook http://x {\n allow_to {env.CHANNEL_CHAT} \"the others\"\n}", []string{"team", "the others"}, []string{"Team", "the", ""}},
		{"webhook http://x {\n allow_to {env.CHANNEL_CHAT}-*-*\n}", []string{"team-a-b", "team--", "team-a-b-c"}, []string{"team-a", "Team-a-b", "team"}},
		{"email mail.example.com {\n from a@example.com\n allow_to b@x.org\n}", []string{"b@x.org", "b@x.org/<id>"}, []string{"c@x.org", "b@x.org.uk", "B@x.org", "b@X.org", "c@y.org/<b@x.org>"}},
		{"email mail.example.com {\n from a@example.com\n allow_to *@x.org\n}", []string{"b@x.org", "c@x.org", "c@x.org/<id>"}, []string{"b@x.org.uk", "b@yx.org", "b@x.org\n", "b@y.org/<c@x.org", "b@y.org/<c@x.org>"}},
		{"email mail.example.com {\n from a@example.com\n allow_to *@x.org*\n}", []string{"b@x.org", "b@x.org.uk/<id>"}, []string{"b@y.org/<c@x.org>"}},
		{"github x {\n allow_to acme/* x/y#7\n}", []string{"acme/widgets#7", "acme/x#1", "x/y#7"}, []string{"acmes/x#7", "x/y#8", "x/y#77", "ACME/x#7"}},
		{"github x {\n allow_to acme/widgets */docs#*\n}", []string{"acme/widgets#7", "x/docs#1"}, []string{"acme/widget#7", "acme/widgets2#7", "x/docs"}},
		{"log {\n allow_to ops\n}", []string{"ops"}, []string{"op", "ops2"}},
		{"log {\n allow_to *ops*dev*\n}", []string{"opsdev", "1ops2dev3"}, []string{"devops", "ops", "opsde"}},
		{"log {\n allow_to ab*ba\n}", []string{"abba", "ab-ba", "abababa"}, []string{"aba", "ab", "ba"}},
		{"log {\n allow_to *\n}", []string{"ops", "any/body"}, nil},
		{"log", []string{"ops", "anybody"}, nil},
		{"email mail.example.com {\n from a@example.com\n}", []string{"b@x.org", "c@x.org"}, nil},
		{"telegram x", []string{"42", "43"}, nil},
	} {
		channel := loadChannel(t, tc.config).(interface{ AllowsTo(to string) bool })
		for _, to := range slices.Concat(tc.allowed, tc.others) {
			if got, want := channel.AllowsTo(to), slices.Contains(tc.allowed, to); got != want {
				t.Errorf("%s: %q is allowed: %v", tc.config, to, got)
			}
		}
	}
}

func TestEntriesThatNoChatCanMatchAreRefused(t *testing.T) {
	t.Parallel()
	for _, config := range []string{
		"telegram x {\n allow_to general-*\n}", "telegram x {\n allow_to 4*/x\n}", "slack x {\n allow_to c*\n}", "slack x {\n allow_to \"#Team*\"\n}",
		"slack x {\n allow_to C0123/*/*\n}", "discord x {\n allow_to 123456789012345678901*\n}", "discord x {\n allow_to -*\n}",
		"matrix http://x x {\n allow_to @*:b.org\n}", "matrix http://x x {\n allow_to !*:..\n}",
		"email mail.example.com {\n from a@example.com\n allow_to *x.org\n}", "email mail.example.com {\n from a@example.com\n allow_to *@x.0\n}",
	} {
		if _, err := tryLoadChannel(t, config); err == nil || !strings.Contains(err.Error(), "is refused") {
			t.Errorf("%s: %v", config, err)
		}
	}
}

func TestEmptyListAllowsNothingAndIsRefused(t *testing.T) {
	t.Parallel()
	r := Recipients{AllowTo: []string{}}
	if err := r.provisionRecipients("log", checkChatName); err == nil {
		t.Error("an empty allow_to is taken")
	}
}
