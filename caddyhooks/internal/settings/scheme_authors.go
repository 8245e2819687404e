package settings

import (
	"regexp"
	"slices"
	"strings"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/strictjson"
)

// eventAuthors says where the events of a sender name their author. A channel of the same name finds its own messages by that, so that it
// is not asked by its own answers.
type eventAuthors struct {
	// Paths to the ids of the author, which are texts or numbers.
	ids []string

	// bot reports whether an event is one of a bot, which may be ours. Parts of the body that it reads are in reads.
	bot   func(doc any) bool
	reads []string

	// counts reports whether an event is one of those that a channel causes. Nil: all are. Whoever lends a token to a channel may be a
	// person who does other things, too.
	counts func(doc any) bool

	// rename makes ids of ids as the channel writes them. Nil: they are the same.
	rename func(path, id string) string
}

var (
	slackAuthors = &eventAuthors{
		ids:   []string{"event.bot_id", "event.user", "event.app_id", "event.message.bot_id", "event.message.user", "event.message.app_id"},
		reads: []string{"event.subtype"},
		bot: func(doc any) bool {
			return strictjson.TextAt(doc, "event.bot_id", "event.message.bot_id") != "" ||
				strictjson.TextAt(doc, "event.subtype") == "bot_message"
		},
	}
	// A button is pressed on a message of the bot. Its author is whoever presses it.
	discordAuthors = &eventAuthors{
		ids:   []string{"member.user.id", "user.id", "author.id", "event.data.user.id", "event.data.author.id"},
		reads: []string{"member.user.bot", "user.bot", "author.bot", "event.data.author.bot"},
		bot:   anyTrue("member.user.bot", "user.bot", "author.bot", "event.data.author.bot"),
	}
	telegramAuthors = &eventAuthors{
		ids: []string{"message.from.id", "edited_message.from.id", "channel_post.from.id", "edited_channel_post.from.id",
			"callback_query.from.id"},
		reads: []string{"message.from.is_bot", "edited_message.from.is_bot", "channel_post.from.is_bot", "edited_channel_post.from.is_bot"},
		bot:   anyTrue("message.from.is_bot", "edited_message.from.is_bot", "channel_post.from.is_bot", "edited_channel_post.from.is_bot"),
	}
	githubAuthors = &eventAuthors{
		ids:   []string{"comment.user.login", "comment.performed_via_github_app.slug", "sender.login"},
		reads: []string{"action", "comment.id", "comment.user.type"},
		bot: func(doc any) bool {
			return strictjson.TextAt(doc, "comment.user.type") == "Bot" && isWritten(strictjson.TextAt(doc, "action"))
		},
		rename: func(path, id string) string {
			if strings.HasSuffix(path, ".slug") {
				return id + appSuffix
			}
			return id
		},
		counts: func(doc any) bool {
			return strictjson.TextAt(doc, "comment.id") != "" && isWritten(strictjson.TextAt(doc, "action"))
		},
	}
	gitlabAuthors = &eventAuthors{
		ids:   []string{"user.id", "user.username", "object_attributes.author_id"},
		reads: []string{"object_kind"},
		bot: func(doc any) bool {
			return strictjson.TextAt(doc, "object_kind") == "note" && gitlabBot.MatchString(strictjson.TextAt(doc, "user.username"))
		},
		counts: func(doc any) bool { return strictjson.TextAt(doc, "object_kind") == "note" },
	}
	linearAuthors = &eventAuthors{
		ids:   []string{"data.userId", "data.user.id", "actor.id"},
		reads: []string{"type", "actor.type", "data.botActor.id"},
		bot: func(doc any) bool {
			kind := strictjson.TextAt(doc, "actor.type")
			return strictjson.TextAt(doc, "type") == "Comment" && (kind != "" && kind != "user" || strictjson.TextAt(doc, "data.botActor.id") != "")
		},
		counts: func(doc any) bool { return strictjson.TextAt(doc, "type") == "Comment" },
	}
)

// appSuffix is how the logins of GitHub Apps end. All that an app does is done by the channel, or by other tools of the operator.
const appSuffix = "[bot]"

// gitlabBot matches the users of tokens of projects and groups.
var gitlabBot = regexp.MustCompile(`^(project|group)_\d+_bot`)

func isWritten(action string) bool { return action == "created" || action == "edited" }

func anyTrue(paths ...string) func(doc any) bool {
	return func(doc any) bool {
		return slices.ContainsFunc(paths, func(path string) bool { return strictjson.ValueAt(doc, path) == true })
	}
}

// EventAuthor is who wrote an event, as far as it says so.
type EventAuthor struct {
	Service string   // the name of the scheme, and of the channels of the same service
	IDs     []string // "" is not among them
	Bot     bool     // it is one of a bot, which may be ours
}

// AuthorOf returns who wrote the event in a body. There are no ids if nobody asks about such events.
func (a Authentication) AuthorOf(doc any) EventAuthor {
	if a.Scheme == nil || a.authors == nil {
		return EventAuthor{}
	}
	author := EventAuthor{Service: a.Name, Bot: a.authors.bot(doc)}
	counts := a.authors.counts == nil || a.authors.counts(doc)
	for _, path := range a.authors.ids {
		id := strictjson.TextAt(doc, path)
		if id == "" {
			continue
		}
		if a.authors.rename != nil {
			id = a.authors.rename(path, id)
		}
		if isApp := strings.HasSuffix(id, appSuffix); isApp || counts && path != "sender.login" {
			author.IDs = append(author.IDs, id)
		}
	}
	return author
}

// selectParts selects the parts of a body that AuthorOf looks at.
func (e *eventAuthors) selectParts(selection *strictjson.Selection) {
	if e == nil {
		return
	}
	selection.Paths(slices.Concat(e.ids, e.reads)...)
}
