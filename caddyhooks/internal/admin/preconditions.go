package admin

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/service"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/settings"
)

// preconditions are If-Match and If-None-Match of a request, as RFC 9110 has them. Without them every change is let through,
// and the last one to save wins.
type preconditions struct {
	match     *tagList // nil if there is no such header
	noneMatch *tagList
}

// tagList is the value of such a header: any representation there is, or one with one of the tags.
type tagList struct {
	any  bool
	tags []entityTag
}

// entityTag is an ETag, with its quotes and without W/.
type entityTag struct {
	text string
	weak bool
}

// parsePreconditions reads the headers of a request.
func parsePreconditions(header http.Header) (p preconditions, err error) {
	if p.match, err = parseTagList(header, "If-Match"); err != nil {
		return p, err
	}
	p.noneMatch, err = parseTagList(header, "If-None-Match")
	return p, err
}

// maxTagList bounds the tags of a header.
const maxTagList = 4 << 10

func parseTagList(header http.Header, name string) (*tagList, error) {
	values := header.Values(name)
	if values == nil {
		return nil, nil
	}
	refused := api.Errorf(http.StatusBadRequest, `%s must be * or tags as ETag shows them, with their quotes, such as "abc"`, name)
	text := strings.Join(values, ",")
	if len(text) > maxTagList {
		return nil, refused
	}
	if strings.Trim(text, " \t") == "*" {
		return &tagList{any: true}, nil
	}
	list := new(tagList)
	for text = strings.TrimLeft(text, " \t,"); text != ""; {
		var tag entityTag
		text, tag.weak = strings.CutPrefix(text, "W/")
		end := strings.IndexByte(strings.TrimPrefix(text, `"`), '"')
		if !strings.HasPrefix(text, `"`) || end < 0 || strings.ContainsFunc(text[1:1+end], func(c rune) bool { return c <= ' ' || c == 0x7f }) {
			return nil, refused
		}
		tag.text, text = text[:end+2], text[end+2:]
		list.tags = append(list.tags, tag)
		rest := strings.TrimLeft(text, " \t")
		if rest != "" && rest[0] != ',' {
			return nil, refused
		}
		text = strings.TrimLeft(rest, " \t,")
	}
	if len(list.tags) == 0 {
		return nil, refused
	}
	return list, nil
}

// hold reports whether a change may go on. current is the ETag of what is there now, "" if there is nothing.
func (p *preconditions) hold(current string) bool {
	// If-Match takes no weak tag: two representations with the same one may differ.
	if p.match != nil && (current == "" || !p.match.any && !slices.Contains(p.match.tags, entityTag{text: current})) {
		return false
	}
	if p.noneMatch == nil || current == "" {
		return true
	}
	return !p.noneMatch.any && !slices.ContainsFunc(p.noneMatch.tags, func(tag entityTag) bool { return tag.text == current })
}

// etag is the ETag of something as it is shown, and of the numbers of the changes that made it so. A secret is shown masked,
// and no secret is part of a tag, from which it could be guessed. The numbers tell that a secret was replaced. They are saved
// with the settings: so all nodes agree, and tags outlive a restart.
func etag(shown any, changes any) (string, error) {
	both, err := json.Marshal([]any{shown, changes})
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(both)
	return `"` + base64.RawURLEncoding.EncodeToString(sum[:15]) + `"`, nil
}

// etagOfSettings covers all that GET settings shows, the mappings too.
func etagOfSettings(in *service.Instance, active *settings.Active) (string, error) {
	return etag(in.ShowSettings(active), active.Changed)
}

// etagOfMapping covers one mapping.
func etagOfMapping(m *settings.Mapping, pinned bool, active *settings.Active) (string, error) {
	shown := settings.ShowMapping(*m, pinned)
	shown.Warnings = nil
	return etag(shown, active.Changed[settings.PartName(m.Name)])
}

// errPrecondition says that a change was made for something that is not there any more, or not yet.
var errPrecondition = errors.New("a precondition failed")

// preconditionError is the answer to it. It says who changed a part of the settings last, any part if it is "". name is
// how the error calls it.
func preconditionError(ctx context.Context, in *service.Instance, part, name string) error {
	ctx, stop := context.WithTimeout(ctx, service.StorePatience)
	defer stop()
	const again = "nothing was saved: look at it again and then change it"
	page, _, err := in.Service.Settings.Changes(ctx, api.MaxPage, "")
	if err != nil {
		return err
	}
	for _, saved := range page {
		change, err := service.NewChangeJSON(saved)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(change.Changes, func(p api.ChangedPart) bool { return part == "" || p.What == part })
		if i < 0 {
			continue
		}
		verb := "changed"
		if part != "" && string(change.Changes[i].After) == "null" {
			verb = "deleted"
		}
		by := cmp.Or(change.By, change.Via)
		return api.Errorf(http.StatusPreconditionFailed, "%s was %s by %s at %s; %s", name, verb, by, saved.At.UTC().Format(time.RFC3339), again)
	}
	return api.Errorf(http.StatusPreconditionFailed, "%s is not what If-Match or If-None-Match asks for; %s", name, again)
}

// checkPreconditions returns errPrecondition if a change may not go on.
func checkPreconditions(p preconditions, current func() (string, error)) error {
	if p.match == nil && p.noneMatch == nil {
		return nil
	}
	tag, err := current()
	if err != nil {
		return fmt.Errorf("telling what is there: %w", err)
	}
	if !p.hold(tag) {
		return errPrecondition
	}
	return nil
}
