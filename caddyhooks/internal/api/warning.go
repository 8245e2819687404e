package api

import "time"

// Warning is about a setting or a hook that is allowed, and probably a mistake.
type Warning struct {
	Code      string     `json:"code"`    // changes with the text
	Setting   string     `json:"setting"` // or the hook, as in "hook github"
	Problem   string     `json:"problem"`
	Advice    string     `json:"advice,omitempty"`
	Link      string     `json:"link"` // in the dashboard
	Dismissal *Dismissal `json:"dismissal,omitempty"`
}

// Dismissal is who dismissed a warning, when and why.
type Dismissal struct {
	Reason string     `json:"reason"`
	By     string     `json:"by,omitempty"`
	At     *time.Time `json:"at"`
}

// WarningList has all warnings, also those that were dismissed.
type WarningList struct {
	Warnings []Warning `json:"warnings"`
}
