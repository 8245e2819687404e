// Package channels has the messaging channels that answers can be delivered to. It imports engine, caddyconf, clicks, outbound
// and strictjson.
//
// A channel is a guest module of the namespace hooks.channels that implements engine.Channel. To add one here, write a file of
// its name with
//
//   - a struct whose exported fields are its configuration, with doc comments for operators. A channel that calls an HTTP
//     service embeds API, which has the URL, the token and the timeout,
//   - init, CaddyModule, Provision, and UnmarshalCaddyfile, which describes the block to caddyconf.ReadBlock,
//   - ValidTo, which refuses texts that cannot be a chat of the service. If chats have threads, Provision sets splitTo, so that an
//     entry of allow_to that names a chat includes them,
//   - Send, which makes one attempt,
//   - if the service can edit messages, Begin and Withdraw of engine.ProgressChannel: edited.go has them for a messageEditor,
//   - if messages can have buttons, Ask and Close of engine.QuestionChannel: asked.go has them for a questioner. Package clicks reads what
//     the service sends when one is pressed,
//   - if events of the service can be of one's own messages, Authors of engine.AuthorChannel,
//
// and a test beside it. `channel <name> <module>` in a Caddyfile then finds it.
//
// Send sends text from an agent to people, so it escapes the service's markup and mentions. API.call sends a request,
// classifies the answer and masks secrets in it; splitter cuts long answers, and sendParts goes on with the part at which the
// last attempt failed. The error of Send tells the engine about the next attempt: engine.FinalError that there is none,
// engine.RetryLaterError when, and engine.UnreachableError that the service is down for other deliveries, too.
package channels
