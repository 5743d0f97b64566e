/* SPDX-License-Identifier: Apache-2.0 */
#include "text.h"

#include <stdbool.h>
#include <string.h>

static bool continues(unsigned char byte)
{
    return (byte & 0xc0) == 0x80;
}

/* The length a first byte announces, and the smallest code point that may be written with that length: longer
 * spellings of smaller ones are not UTF-8. */
static size_t announced(unsigned char byte, uint32_t *least_out)
{
    if (byte < 0x80) {
        *least_out = 1;
        return 1;
    }
    if ((byte & 0xe0) == 0xc0) {
        *least_out = 0x80;
        return 2;
    }
    if ((byte & 0xf0) == 0xe0) {
        *least_out = 0x800;
        return 3;
    }
    if ((byte & 0xf8) == 0xf0) {
        *least_out = 0x10000;
        return 4;
    }
    return 0;
}

size_t tsi_text_sequence(const char *text, uint32_t *code_out)
{
    const unsigned char *bytes = (const unsigned char *)text;
    static const unsigned char mask[] = {0, 0x7f, 0x1f, 0x0f, 0x07};
    uint32_t least;
    size_t length = announced(bytes[0], &least);

    if (length == 0)
        return 0;
    uint32_t code = bytes[0] & mask[length];
    for (size_t i = 1; i < length; i++) {
        if (!continues(bytes[i])) /* the final 0 included */
            return 0;
        code = code << 6 | (bytes[i] & 0x3f);
    }
    if (code < least || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff))
        return 0;
    *code_out = code;
    return length;
}

/* Not: control characters (C0, DEL, C1), and those that hide or reorder what stands around them. */
static bool visible(uint32_t code)
{
    if (code < 0x20 || (code >= 0x7f && code <= 0x9f))
        return false;
    return !(code >= 0x200b && code <= 0x200f) && !(code >= 0x2028 && code <= 0x202e) &&
           !(code >= 0x2060 && code <= 0x206f) && code != 0xfeff;
}

void tsi_text_clean(char *text)
{
    char *to = text;

    while (*text != '\0') {
        uint32_t code;
        size_t length = tsi_text_sequence(text, &code);
        if (length > 0 && visible(code)) {
            memmove(to, text, length);
            to += length;
        } else {
            *to++ = '?';
        }
        text += length > 0 ? length : 1;
    }
    *to = '\0';
}

/* Writes the character or the stray byte at `text` for the inside of a JSON string and returns how many bytes it had.
 */
static size_t put_character(const char *text, FILE *out)
{
    uint32_t code;
    size_t length = tsi_text_sequence(text, &code);

    if (length == 0) {
        fprintf(out, "\\udc%02x", (unsigned char)*text);
        return 1;
    }
    if (visible(code))
        fwrite(text, 1, length, out);
    else
        fprintf(out, "\\u%04x", code); /* all that is not visible has at most four digits */
    return length;
}

void tsi_text_json_string(const char *text, FILE *out)
{
    putc('"', out);
    while (*text != '\0') {
        if (*text == '"' || *text == '\\')
            putc('\\', out);
        text += put_character(text, out);
    }
    putc('"', out);
}

void tsi_text_json_clean(const char *json, FILE *out)
{
    while (*json != '\0') {
        /* White space between values is the only control character that JSON allows: one line needs none of it. */
        if (strchr("\t\r\n", *json) != NULL)
            json++;
        else
            json += put_character(json, out);
    }
}
