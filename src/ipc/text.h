/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Text that others wrote (file names, names from messages, a peer's JSON) on its way to a terminal or into JSON.
 *
 * A name may hold any bytes: escape sequences that rewrite the terminal, line breaks that forge a line, bytes that are
 * not UTF-8. Whatever is printed of it goes through here. All functions may be called from any thread.
 */
#ifndef TSI_TEXT_H
#define TSI_TEXT_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* The length of the valid UTF-8 sequence at `text` (1 to 4), with its code point; 0 where none begins or text ends. */
size_t tsi_text_sequence(const char *text, uint32_t *code_out);

/* Replaces by '?', in place, all that is not a visible character or a space. */
void tsi_text_clean(char *text);

/*
 * Writes `text` as a JSON string, quotes included, in one line. Bytes that are not UTF-8 become \udc80 .. \udcff, as
 * Python's "surrogateescape" has them, so that a reader can have the very bytes back.
 */
void tsi_text_json_string(const char *text, FILE *out);

/* Writes JSON that somebody else made: the same document, with the strings made safe in the same manner. */
void tsi_text_json_clean(const char *json, FILE *out);

#endif
