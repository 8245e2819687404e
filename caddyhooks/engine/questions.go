package engine

import (
	"context"
	"errors"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/question"
)

// What stores and services use of package question.
type (
	Question           = question.Question
	QuestionKind       = question.Kind
	Answer             = question.Answer
	AnswerRefusedError = question.AnswerRefusedError
)

// Those of its constants.
const (
	MaxQuestions       = question.Max
	MaxQuestionText    = question.MaxText
	MaxQuestionState   = question.MaxState
	AskAgent           = question.AskAgent
	AskStart           = question.AskStart
	AskDeliver         = question.AskDeliver
	AskInput           = question.AskInput
	AskPermission      = question.AskPermission
	Yes                = question.Yes
	No                 = question.No
	AnsweredByAgent    = question.AnsweredByAgent
	AnsweredByPush     = question.AnsweredByPush
	AnsweredByChannel  = question.AnsweredByChannel
	AnsweredByLink     = question.AnsweredByLink
	AnsweredByPage     = question.AnsweredByPage
	AnsweredByCommand  = question.AnsweredByCommand
	AnsweredByAPI      = question.AnsweredByAPI
	AnsweredByDeadline = question.AnsweredByDeadline
	AnsweredByEnd      = question.AnsweredByEnd
)

// QuestionID names a question of a run.
func QuestionID(runID string, number int) string { return question.IDOf(runID, number) }

// ParseQuestionID is the reverse of QuestionID.
func ParseQuestionID(id string) (runID string, number int, ok bool) { return question.ParseID(id) }

// QuestionDeliveryIndex is the index of the delivery that asks a question of a run, or that closes it, among the deliveries of the run.
func QuestionDeliveryIndex(number int, closes bool) int {
	return question.DeliveryIndex(number, closes)
}

// Questions keeps the questions of runs, from when they are asked until the runs are pruned.
type Questions interface {
	// Ask stores a question of a run that is being carried out, and goes on being: the claim stays. Deliveries of the run are stored in the
	// same step. ErrClaimLost says that the claim does not hold. Questions for which a run is put aside are stored by Runs.End. Numbers have
	// no gaps. A run that has questions is not overdue any more.
	Ask(ctx context.Context, claim *Claim, question *Question, deliveries ...*Delivery) error

	// Answer stores the answer to a question, and deliveries of its run, in one step. If the run is put aside for the question, it is queued
	// again in the same step, and due. Watch.Claimable tells of every answer. ErrAnswered says that there is an answer already, and that
	// nothing was done: the question that is returned has it. The end of a run answers what is still open.
	//
	// A question that was not asked yet can be answered if it is the next one of a run that has not ended. The answer is kept, and the run is
	// not put aside when the question is asked. ErrNotFound says that there is no such question, and that it is not the next one.
	Answer(ctx context.Context, id string, answer Answer, deliveries ...*Delivery) (*Question, error)

	// Get returns a question, or ErrNotFound.
	Get(ctx context.Context, id string) (*Question, error)

	// List returns open questions for people, without their State, the one that was asked last first. For next see Runs.List. It takes no
	// longer if many runs wait for their agents.
	List(ctx context.Context, limit int, cursor string) (page []*Question, next string, err error)

	// Count is how many questions for people are open. It takes no longer if there are many.
	Count(ctx context.Context) (int, error)
}

// ErrAnswered says that a question has an answer already.
var ErrAnswered = errors.New("the question was answered already")
