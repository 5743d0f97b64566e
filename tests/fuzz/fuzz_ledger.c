/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An audit: any records, in any order, give findings that have a text. The checksum of each is made right first, so
 * that what is behind it is reached.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "consumer/audit.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static void add(struct tsc_audit *audit, const uint8_t *bytes)
{
    struct tsi_record record = {.kind = bytes[0] % TSI_RECORD_KINDS, .detail = bytes[1], .stream = bytes[2] % 4u};
    unsigned char packed[TSI_RECORD_BYTES];

    if (record.kind == TSI_RECORD_TEXT) {
        record.stream = bytes[2] % (TSI_RECORD_PIECE + 1);
        memcpy(record.piece, bytes + 8, TSI_RECORD_PIECE);
    } else {
        record.consumer = bytes[8] % 8; /* few, so that they meet */
        memcpy(&record.a, bytes + 16, 8);
        memcpy(&record.b, bytes + 24, 8);
        memcpy(&record.c, bytes + 32, 8);
    }
    tsi_record_pack(&record, 0, packed);
    if (tsi_record_unpack(packed, 0, &record) == TSOCKET_OK)
        tsc_audit_record(audit, &record);
    else
        tsc_audit_damage(audit, 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct tsc_audit audit = {0};
    struct tsi_record ignored;
    char text[256];

    for (; len >= TSI_RECORD_BYTES; data += TSI_RECORD_BYTES, len -= TSI_RECORD_BYTES) {
        tsi_record_unpack(data, 0, &ignored);
        add(&audit, data);
    }
    tsc_audit_end(&audit, len);
    for (size_t i = 0; i < audit.findings.n; i++) {
        tsc_finding_text(&audit.findings.items[i], text, sizeof(text));
        if (text[0] == '\0' || tsc_finding_word(audit.findings.items[i].what)[0] == '\0')
            abort();
    }
    tsc_audit_fini(&audit);
    return 0;
}
