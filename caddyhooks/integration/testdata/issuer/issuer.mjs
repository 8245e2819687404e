// An issuer on 127.0.0.1, with a new key each time. A program with the id "robot" gets tokens from it, for any audience. The header Changes
// of its request, {"header", "payload"}, changes what the issuer signs.
// Usage: node issuer.mjs <folder with node_modules> <port> <RS256|ES256|EdDSA>
import { generateKeyPairSync } from "node:crypto";

const [folder, port, algorithm] = process.argv.slice(2);
const { default: Provider } = await import(`${folder}/node_modules/oidc-provider/lib/index.js`);
const [kind, options] = { RS256: ["rsa", { modulusLength: 2048 }], ES256: ["ec", { namedCurve: "P-256" }], EdDSA: ["ed25519", {}] }[algorithm];
const key = { ...generateKeyPairSync(kind, options).privateKey.export({ format: "jwk" }), alg: algorithm, use: "sig" };

new Provider(`http://127.0.0.1:${port}`, {
  jwks: { keys: [key] },
  clients: [{ client_id: "robot", client_secret: "a-secret-of-the-robot", grant_types: ["client_credentials"], redirect_uris: [], response_types: [],
    id_token_signed_response_alg: algorithm }],
  enabledJWA: { idTokenSigningAlgValues: [algorithm] },
  formats: {
    customizers: {
      jwt(ctx, _, jwt) {
        const { header, payload } = JSON.parse(ctx.get("Changes") || "{}");
        jwt.header = header;
        Object.assign(jwt.payload, payload);
      },
    },
  },
  features: {
    devInteractions: { enabled: false },
    clientCredentials: { enabled: true },
    resourceIndicators: {
      enabled: true,
      getResourceServerInfo: (_, audience) => ({ audience, scope: "deploy read", accessTokenFormat: "jwt", jwt: { sign: { alg: algorithm } } }),
    },
  },
}).listen(Number(port), "127.0.0.1");
