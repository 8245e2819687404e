package api

import (
	"time"
)

// About is what a page has to know about an instance, and what no setting tells.
type About struct {
	Instance          string     `json:"instance"`
	Path              string     `json:"path"`
	URLs              []string   `json:"urls"` // as far as they are known
	On                bool       `json:"on"`
	OffBecause        string     `json:"offBecause"`
	Channels          []Guest    `json:"channels"`
	Runner            string     `json:"runner"` // the kind of the default one
	Runners           []Guest    `json:"runners"`
	Store             string     `json:"store"`
	StoreBytes        int64      `json:"storeBytes,omitempty"` // if it is known
	Tiers             []string   `json:"tiers"`                // that a runner uses
	MemoryPresets     []string   `json:"memoryPresets"`        // that a runner uses
	MaxTimeoutSeconds int        `json:"maxTimeoutSeconds"`
	QueueTimeSeconds  int        `json:"queueTimeSeconds"`
	RetentionSeconds  int        `json:"retentionSeconds"`
	Workers           int        `json:"workers"`
	Schemes           []Scheme   `json:"schemes"`
	Settings          []Setting  `json:"settings"`
	Now               *time.Time `json:"now"`
}

// Setting is a setting as a page offers it.
type Setting struct {
	Name  string `json:"name"`
	Label string `json:"label"`
	Hint  string `json:"hint"`
	Input string `json:"input"` // the kind of its input
}

// Scheme is a way to authenticate that a custom hook can choose.
type Scheme struct {
	Name             string   `json:"name"`  // the value of authMode
	Title            string   `json:"title"` // a sender's name begins with a capital letter
	Fields           []string `json:"fields"`
	Theirs           bool     `json:"theirs"` // the sender makes the secret
	Signs            bool     `json:"signs"`  // a payload can be signed for a try-out
	ToleranceSeconds int      `json:"toleranceSeconds"`
	SuccessStatus    int      `json:"successStatus,omitempty"` // of every answer, if the sender takes no other one for success
}

// Guest is a channel or a runner.
type Guest struct {
	Name string `json:"name"`
	Kind string `json:"kind"`
}
