/* SPDX-License-Identifier: Apache-2.0 */
#include "findings.h"

#include <stdio.h>
#include <stdlib.h>

static const char *const words[] = {
    [TSC_MISSING] = "missing",     [TSC_TWICE] = "twice",         [TSC_SKIPPED] = "skipped",
    [TSC_BEYOND] = "beyond",       [TSC_NO_LENGTH] = "no_length", [TSC_TWO_LENGTHS] = "two_lengths",
    [TSC_SCATTERED] = "scattered", [TSC_NO_RANK] = "no_rank",     [TSC_LOST] = "lost",
    [TSC_DAMAGED] = "damaged",     [TSC_STRAY] = "stray",         [TSC_PARTIAL] = "partial",
    [TSC_MIDDLE] = "middle",       [TSC_OWED] = "owed",           [TSC_RANK_BEHIND] = "rank_behind",
    [TSC_CRASHED] = "crashed",     [TSC_TORN] = "torn",
};

void tsc_findings_add(struct tsc_findings *findings, const struct tsc_finding *finding)
{
    findings->exceptions += tsc_finding_is_exception(finding);
    if (findings->n == findings->room) {
        size_t room = findings->room > 0 ? 2 * findings->room : 16;
        struct tsc_finding *items = realloc(findings->items, room * sizeof(*items));

        if (items == NULL) {
            findings->no_memory = true;
            return;
        }
        findings->items = items;
        findings->room = room;
    }
    findings->items[findings->n++] = *finding;
}

void tsc_findings_fini(struct tsc_findings *findings)
{
    free(findings->items);
    *findings = (struct tsc_findings){0};
}

bool tsc_finding_is_exception(const struct tsc_finding *finding)
{
    return finding->what < TSC_NOTES;
}

const char *tsc_finding_word(enum tsc_what what)
{
    return words[what];
}

void tsc_finding_text(const struct tsc_finding *finding, char *out, size_t len)
{
    unsigned long long epoch = finding->epoch, from = finding->from, to = finding->to;

    switch (finding->what) {
    case TSC_MISSING:
        snprintf(out, len, "epoch %llu: samples %llu to %llu were never released", epoch, from, to);
        break;
    case TSC_TWICE:
        snprintf(out, len, "epoch %llu: samples %llu to %llu were released twice", epoch, from, to);
        break;
    case TSC_SKIPPED:
        snprintf(out, len, "epoch %llu: it was moved past samples %llu to %llu", epoch, from, to);
        break;
    case TSC_BEYOND:
        snprintf(out, len, "epoch %llu: it released up to sample %llu, the epoch ended at %llu", epoch, from, to);
        break;
    case TSC_NO_LENGTH:
        snprintf(out, len, "epoch %llu was completed, but its length is not recorded", epoch);
        break;
    case TSC_TWO_LENGTHS:
        snprintf(out, len, "epoch %llu is said to have %llu samples, and %llu samples", epoch, from, to);
        break;
    case TSC_SCATTERED:
        snprintf(out, len, "epoch %llu was read in too many pieces to follow them", epoch);
        break;
    case TSC_NO_RANK:
        snprintf(out, len, "epoch %llu: nobody read the windows of rank %llu of %llu; other ranks completed it", epoch,
                 from, to);
        break;
    case TSC_LOST:
        snprintf(out, len, "%llu records could not be written: what happened then is not known", from);
        break;
    case TSC_DAMAGED:
        snprintf(out, len,
                 "%llu records are damaged, or stand where something is missing or was put in: the first at byte %llu",
                 from, to);
        break;
    case TSC_STRAY:
        snprintf(out, len, "a record speaks of number %llu, which was not introduced", from);
        break;
    case TSC_PARTIAL:
        snprintf(out, len, "epoch %llu: it joined in the middle, at sample %llu, as it asked for", epoch, from);
        break;
    case TSC_MIDDLE:
        snprintf(out, len, "epoch %llu: it ended in the middle; it had released what comes before sample %llu", epoch,
                 from);
        break;
    case TSC_OWED:
        snprintf(out, len, "epoch %llu: it died before it got samples %llu to %llu again, which it had lost", epoch,
                 from, to);
        break;
    case TSC_RANK_BEHIND:
        snprintf(out, len, "epoch %llu: rank %llu of %llu did not come to its end; other ranks completed it", epoch,
                 from, to);
        break;
    case TSC_CRASHED:
        snprintf(out, len,
                 "run %llu of the daemon did not end in order, or still runs: its last second may not be recorded",
                 from);
        break;
    case TSC_TORN:
        snprintf(out, len, "the file ends with %llu bytes of a record that a crash cut short", from);
        break;
    }
}
