#ifndef TRUCE_TESTS_SUPPORT_CERTIFICATE_H
#define TRUCE_TESTS_SUPPORT_CERTIFICATE_H

/* Certificates for tests, made as they are needed. */

/* Makes two PEM files: FILE.pem with the certificate and its key, and FILE.ca with the
 * certificate of the signer. The certificate is for "localhost" and 127.0.0.1, signed by a CA of
 * its own. */
void certificate_make(const char *file);
/* Makes FILE.pem, signed by the CA of `by`, which certificate_make has made in this process. */
void certificate_make_signed(const char *file, const char *by);

#endif
