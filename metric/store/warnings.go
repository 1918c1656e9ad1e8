package store

import (
	"context"
	"log/slog"
)

// warnings passes on lines of the TSDB from the level warn, because its info lines tell each compaction. Lines that an
// operator cannot act upon are lowered to debug, and some get words that explain themselves.
type warnings struct{ slog.Handler }

// translations are the messages that are not passed on as they are, with their new words. Without words a line is
// lowered to debug.
var translations = map[string]string{
	// After a kill all tiers say this. New has one line of its own.
	"A lockfile from a previous execution already existed. It was replaced": "",
	// Late and imported points make blocks that overlap with others until a compaction merges them.
	"Overlapping blocks found during opening":      "",
	"Overlapping blocks found during reloadBlocks": "",
	// The next compaction goes on.
	"aborting block compactions to persist the head block": "",
	// A kill between two steps of a compaction leaves this behind, and the TSDB removes it.
	"Found corrupted block, but replaced by compacted one so it's safe to delete. This should not happen with " +
		"atomic deletes.": "",
	// A kill in the middle of a write leaves this behind. Nothing that was committed is in the torn page.
	"Last page of the wlog is torn, filling it with zeros": "",
	// These are the steps of a repair, which the two lines below announce.
	"Starting corruption repair":                         "",
	"Deleting all segments newer than corrupted segment": "",
	"Rewrite corrupted segment":                          "",

	"Encountered WAL read error, attempting repair": "write-ahead log of a tier is damaged, points behind the damage " +
		"are lost",
	"Encountered WBL read error, attempting repair": "log of late points of a tier is damaged, points behind the " +
		"damage are lost",
	"Unknown series references": "write-ahead log of a tier has points of unknown series, they are left out",
	"Unknown series references for ooo WAL replay": "log of late points of a tier has points of unknown series, they are " +
		"left out",
	"Head compaction took longer than the block time range, compactions are falling behind and won't be able to " +
		"catch up": "compactions of a tier are slower than its points arrive, the memory grows",
}

func (w warnings) Enabled(ctx context.Context, l slog.Level) bool {
	return l >= slog.LevelWarn && w.Handler.Enabled(ctx, l)
}

func (w warnings) Handle(ctx context.Context, r slog.Record) error {
	words, ok := translations[r.Message]
	switch {
	case ok && words != "":
		r.Message = words
	case ok:
		if !w.Handler.Enabled(ctx, slog.LevelDebug) {
			return nil
		}
		r.Level = slog.LevelDebug
	}
	return w.Handler.Handle(ctx, r)
}

func (w warnings) WithAttrs(attrs []slog.Attr) slog.Handler {
	return warnings{w.Handler.WithAttrs(attrs)}
}

func (w warnings) WithGroup(name string) slog.Handler { return warnings{w.Handler.WithGroup(name)} }
