// Issuers of tokens that others wrote, for a resource server of ours: prints where they are, one JSON object on a line.
//
// `oidc` is `oidc-provider`: whoever comes is logged in as ada and agrees to all. `offline` is the same, and lets a client come back without
// the person only if it has asked for that. `mock` is `oauth2-mock-server`, which signs whatever a request for a token says in its parameter
// `forge`: claims and fields of the header besides or instead of its own; null takes one out.

import { createServer } from "node:http";
import { Events, OAuth2Server } from "oauth2-mock-server";
import Provider from "oidc-provider";

const RESOURCE = "http://localhost/mcp";
const SCOPES = ["files:read", "files:write"];
const SECONDS = 2; // so long signed tokens are good, and so long a test waits for that
const LONGER = 600; // so long opaque ones are, whose test waits for nothing

async function listening(server) {
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  return `http://127.0.0.1:${server.address().port}`;
}

// What the client says of itself that is known by a document.
const DOCUMENT = {
  client_id: "https://app.example/client.json",
  client_name: "a client with a document",
  redirect_uris: ["http://127.0.0.1/callback"],
  grant_types: ["authorization_code", "refresh_token"],
  application_type: "native",
  token_endpoint_auth_method: "none",
};

async function oidc(more = {}) {
  const server = createServer((request, response) => answer(request, response));
  const url = await listening(server);
  const provider = new Provider(url, {
    clients: [
      { client_id: "program", client_secret: "secret", grant_types: ["client_credentials"], response_types: [], redirect_uris: [] },
      {
        client_id: "desk",
        client_secret: "s3cret",
        grant_types: ["authorization_code", "refresh_token"],
        redirect_uris: ["http://127.0.0.1/callback"],
        application_type: "native",
      },
    ],
    scopes: SCOPES,
    async fetch(url, options) {
      if (String(url) !== DOCUMENT.client_id) return fetch(url, options);
      return new Response(JSON.stringify(DOCUMENT), { headers: { "content-type": "application/json" } });
    },
    cookies: { keys: ["for tests"] },
    // A client registers with those scopes that it was told of first. Held to them, it could never ask for more.
    extraClientMetadata: {
      properties: ["more scopes"],
      validator(context, name, value, metadata) {
        metadata.scope &&= (more.scopes ?? SCOPES).join(" ");
      },
    },
    issueRefreshToken: () => true,
    features: {
      clientIdMetadataDocument: { enabled: true, ack: "draft-02" },
      clientCredentials: { enabled: true },
      devInteractions: { enabled: false },
      introspection: { enabled: true, allowedPolicy: () => true },
      registration: { enabled: true },
      revocation: { enabled: true },
      resourceIndicators: {
        enabled: true,
        getResourceServerInfo: (context, resource, client) => ({
          scope: SCOPES.join(" "),
          audience: resource,
          ...(client.clientId === "program"
            ? { accessTokenFormat: "opaque", accessTokenTTL: LONGER }
            : { accessTokenFormat: "jwt", accessTokenTTL: SECONDS }),
        }),
      },
    },
    async loadExistingGrant({ oidc: { client, session, params, provider: { Grant } } }) {
      const grant = new Grant({ clientId: client.clientId, accountId: session.accountId });
      grant.addOIDCScope(params.scope);
      grant.addResourceScope(params.resource, params.scope);
      await grant.save();
      return grant;
    },
    ...more,
  });
  const serve = provider.callback();
  function answer(request, response) {
    if (!request.url.startsWith("/interaction/")) return serve(request, response);
    return provider.interactionFinished(request, response, { login: { accountId: "ada" }, consent: {} });
  }
  return url;
}

async function mock() {
  const server = new OAuth2Server();
  await server.issuer.keys.generate("RS256");
  server.service.on(Events.BeforeTokenSigning, (token, { body }) => {
    Object.assign(token.payload, { aud: body.resource ?? RESOURCE, client_id: "program" });
    if (body.grant_type !== "client_credentials") token.payload.scope = SCOPES.join(" ");
    for (const [part, forged] of Object.entries(JSON.parse(body.forge ?? "{}"))) {
      for (const [name, value] of Object.entries(forged)) {
        if (value === null) delete token[part][name];
        else token[part][name] = value;
      }
    }
  });
  await server.start(0, "127.0.0.1");
  return server.issuer.url;
}

const offline = {
  scopes: [...SCOPES, "offline_access"],
  issueRefreshToken: (context, client, code) => code.scopes.has("offline_access"),
};
const found = { oidc: await oidc(), offline: await oidc(offline), mock: await mock() };
process.stdout.write(`${JSON.stringify(found)}\n`);
