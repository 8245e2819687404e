package channels

import (
	"slices"
	"testing"
)

func TestChannelsAllowTheChatsOfTheirConfiguration(t *testing.T) {
	t.Setenv("CHANNEL_CHAT", "team")
	configs := map[string]struct {
		allowed []string
		others  []string
	}{
		"telegram x {\n allow_to 42 -100/7\n}":                                {[]string{"42", "-100/7"}, []string{"-100", "42/7", "43"}},
		"slack x {\n allow_to C0123456789\n}":                                 {[]string{"C0123456789"}, []string{"#general", "C0123456780"}},
		"discord x {\n allow_to 123456789012345678\n}":                        {[]string{"123456789012345678"}, []string{"123456789012345679"}},
		"matrix http://x x {\n allow_to !a:b.org\n}":                          {[]string{"!a:b.org"}, []string{"#a:b.org", "!A:b.org"}},
		"webhook http://x {\n allow_to {env.CHANNEL_CHAT} \"the others\"\n}":  {[]string{"team", "the others"}, []string{"Team", "the", ""}},
		"email mail.example.com {\n from a@example.com\n allow_to b@x.org\n}": {[]string{"b@x.org"}, []string{"c@x.org", "b@x.org.uk"}},
		"log {\n allow_to ops\n}":                                             {[]string{"ops"}, []string{"op", "ops2"}},
		"log":                                                                 {[]string{"ops", "anybody"}, nil},
		"email mail.example.com {\n from a@example.com\n}":                    {[]string{"b@x.org", "c@x.org"}, nil},
		"telegram x": {[]string{"42", "43"}, nil},
	}
	for config, chats := range configs {
		channel := loadChannel(t, config).(interface{ AllowsTo(to string) bool })
		for _, to := range slices.Concat(chats.allowed, chats.others) {
			if got, want := channel.AllowsTo(to), slices.Contains(chats.allowed, to); got != want {
				t.Errorf("%s: %q is allowed: %v", config, to, got)
			}
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
