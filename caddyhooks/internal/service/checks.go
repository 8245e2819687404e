package service

// MaxChecks bounds how often a request is checked while the settings change again and again.
const MaxChecks = 100
