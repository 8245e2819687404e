package engine

// Field is a field of a run that stores write down, all of which the tables below name. A store knows its type by what At points to.
type Field[T any] struct {
	Number int          // of the field in numbered records
	Name   string       // of the field in JSON, "" if stores with columns have one for it
	At     func(*T) any // points to the value
}

// MaxFields is how many numbers there can be. A larger one only needs another constant here.
const MaxFields = 128

// RunFields are the fields of a run. Never reuse a number or a name. The next free number is 69; bolt uses what is missing.
var RunFields = []Field[Run]{
	{1, "", func(r *Run) any { return &r.ChatID }},
	{2, "", func(r *Run) any { return &r.Hook }},
	{3, "action", func(r *Run) any { return (*string)(&r.Action) }},
	{4, "name", func(r *Run) any { return &r.Name }},
	{5, "message", func(r *Run) any { return &r.Message }},
	{6, "metadata", func(r *Run) any { return (*[]byte)(&r.Metadata) }},
	{10, "schema", func(r *Run) any { return (*[]byte)(&r.Schema) }},
	{7, "tier", func(r *Run) any { return &r.Tier }},
	{8, "validationTier", func(r *Run) any { return &r.ValidationTier }},
	{9, "memoryPreset", func(r *Run) any { return &r.MemoryPreset }},
	{11, "sync", func(r *Run) any { return &r.Sync }},
	{12, "callbackUrl", func(r *Run) any { return &r.CallbackURL }},
	{13, "channel", func(r *Run) any { return &r.Channel }},
	{14, "to", func(r *Run) any { return &r.To }},
	{15, "timeout", func(r *Run) any { return &r.Timeout }},
	{35, "queueTime", func(r *Run) any { return &r.QueueTime }},
	{36, "history", func(r *Run) any { return &r.History }},
	{16, "", func(r *Run) any { return &r.AcceptedAt }},
	{17, "traceParent", func(r *Run) any { return &r.TraceParent }},
	{37, "againOf", func(r *Run) any { return &r.AgainOf }},
	{45, "newChat", func(r *Run) any { return &r.NewChat }},
	{46, "test", func(r *Run) any { return &r.Test }},
	{48, "foldWindow", func(r *Run) any { return &r.Fold.Window }},
	{49, "foldMax", func(r *Run) any { return &r.Fold.Max }},
	{57, "foldAlike", func(r *Run) any { return &r.Fold.Alike }},
	{18, "key", func(r *Run) any { return &r.Key }},
	{51, "replay", func(r *Run) any { return &r.Replay }},
	{20, "owner", func(r *Run) any { return &r.Owner }},
	{33, "", func(r *Run) any { return &r.Runner }},
	{54, "together", func(r *Run) any { return &r.Together }},
	{39, "client", func(r *Run) any { return &r.Client }},
	{40, "keyHeader", func(r *Run) any { return &r.KeyHeader }},
	{61, "requestId", func(r *Run) any { return &r.RequestID }},
	{62, "sender", func(r *Run) any { return &r.Sender }},
	{63, "asks", func(r *Run) any { return &r.Asks }},
	{66, "budgets", func(r *Run) any { return &r.Budgets }},
	{67, "replaces", func(r *Run) any { return &r.Replaces }},
	{68, "foldLatest", func(r *Run) any { return &r.Fold.Latest }},
}

// EndFields are those that a run has besides when it has ended. Numbers and names are others than those of RunFields, but for "message".
var EndFields = []Field[Record]{
	{21, "status", func(r *Record) any { return (*string)(&r.Outcome.Status) }},
	{22, "text", func(r *Record) any { return &r.Outcome.Text }},
	{23, "hasText", func(r *Record) any { return &r.Outcome.HasText }},
	{24, "json", func(r *Record) any { return &r.Outcome.JSON }},
	{25, "repairs", func(r *Record) any { return &r.Outcome.Repairs }},
	{32, "checked", func(r *Record) any { return &r.Outcome.Checked }},
	{26, "failure", func(r *Record) any { return (*string)(&r.Outcome.Failure) }},
	{27, "message", func(r *Record) any { return &r.Outcome.Message }},
	{28, "retryAfter", func(r *Record) any { return &r.Outcome.RetryAfter }},
	{29, "", func(r *Record) any { return &r.Attempts }},
	{30, "", func(r *Record) any { return &r.StartedAt }},
	{31, "", func(r *Record) any { return &r.FinishedAt }},
	{41, "cancelledBy", func(r *Record) any { return &r.Outcome.Account.CancelledBy }},
	{42, "reason", func(r *Record) any { return &r.Outcome.Account.Reason }},
	{43, "lastAnswer", func(r *Record) any { return &r.Outcome.Account.LastAnswer }},
	{44, "validationErrors", func(r *Record) any { return &r.Outcome.Account.ValidationErrors }},
	{58, "sessionRenewed", func(r *Record) any { return &r.Outcome.SessionRenewed }},
	{59, "permissions", func(r *Record) any { return &r.Outcome.Account.Permissions }},
	{60, "morePermissions", func(r *Record) any { return &r.Outcome.Account.MorePermissions }},
	{64, "usage", func(r *Record) any { return &r.Outcome.Usage }},
	{65, "usageRefused", func(r *Record) any { return &r.Outcome.Account.UsageRefused }},
	{47, "steps", func(r *Record) any { return &r.Steps }},
}
