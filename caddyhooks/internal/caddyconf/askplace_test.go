package caddyconf

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
)

func TestPlacesOfQuestions(t *testing.T) {
	t.Parallel()
	for words, want := range map[string]AskPlace{
		"ops -100123":                            {Channel: "ops", To: "-100123"},
		"ops -100123 1h":                         {Channel: "ops", To: "-100123", For: caddy.Duration(time.Hour)},
		"ops -100123 2d by U1 U2":                {Channel: "ops", To: "-100123", For: caddy.Duration(48 * time.Hour), By: []string{"U1", "U2"}},
		"ops -100123 by U1":                      {Channel: "ops", To: "-100123", By: []string{"U1"}},
		"ops -100123 30m else reject":            {Channel: "ops", To: "-100123", For: caddy.Duration(30 * time.Minute), Else: "reject"},
		"ops by by U1":                           {Channel: "ops", To: "by", By: []string{"U1"}},
		"ops -100123 30m by U1 U2 else no":       {"ops", "-100123", []string{"U1", "U2"}, caddy.Duration(30 * time.Minute), "no"},
		"ops {http.request.host} 1s else {host}": {Channel: "ops", To: "{host}", For: caddy.Duration(time.Second), Else: "{host}"},
	} {
		if got, err := ReadAskPlace(strings.Fields(words)); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, want %+v (%v)", words, got, want, err)
		}
	}
	place := AskPlace{"ops", "-1", []string{"U1"}, caddy.Duration(time.Hour), "no"}
	if got := place.Place(); got.Channel != "ops" || got.To != "-1" || got.By[0] != "U1" || got.For != time.Hour || got.Else != "no" {
		t.Errorf("the engine gets %+v", got)
	}
}

func TestPlacesOfQuestionsThatAreRefused(t *testing.T) {
	t.Parallel()
	for words, want := range map[string]string{
		"":                                      "needs a channel and a chat",
		"ops":                                   "needs a channel and a chat",
		"ops -1 soon":                           "has 'soon' where a duration of at least 1s can be, such as 30s",
		"ops -1 30":                             "has '30' where a duration of at least 1s can be; write 30s",
		"ops -1 1ms":                            "at least 1s",
		"ops -1 by 4711 1h":                     "has '1h' after by, where ids stand: a duration stands before by",
		"ops -1 1h 2h":                          "has '2h' where by or else should be",
		"ops -1 1h else no by U1":               "takes one answer after else",
		"ops -1 1h else":                        "takes one answer after else",
		"ops -1 1h else a b":                    "takes one answer after else",
		"ops -1 by":                             "needs at least one id after by",
		"ops -1 1h by else no":                  "needs at least one id after by",
		"ops -1 by U1 by U2":                    "has 'by' where by or else should be",
		"ops -1 by U1 U1":                       "has the id 'U1' after by twice",
		"ops -1 else":                           "takes one answer after else",
		"ops -1 by" + strings.Repeat(" U", 101): "names more than 100 people",
	} {
		if got, err := ReadAskPlace(strings.Fields(words)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %+v, %v, want %s", words, got, err, want)
		}
	}
	for want, place := range map[string]AskPlace{
		"needs a channel and a chat": {},
		"has a negative duration":    {Channel: "ops", To: "-1", For: -1},
		"has a blank id":             {Channel: "ops", To: "-1", By: []string{" "}},
	} {
		if err := place.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %s", place, err, want)
		}
	}
}
