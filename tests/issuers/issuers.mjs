// Two issuers of tokens that others wrote, for a resource server of ours: prints where they are, one JSON object on a line.
//
// `oidc` is `oidc-provider`: whoever comes is logged in as ada and agrees to all. `mock` is `oauth2-mock-server`, which signs whatever a
// request for a token says in its parameter `forge`: claims and fields of the header besides or instead of its own; null takes one out.

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

async function oidc() {
  const server = createServer((request, response) => answer(request, response));
  const url = await listening(server);
  const provider = new Provider(url, {
    clients: [
      { client_id: "program", client_secret: "secret", grant_types: ["client_credentials"], response_types: [], redirect_uris: [] },
    ],
    scopes: SCOPES,
    cookies: { keys: ["for tests"] },
    // A client registers with those scopes that it was told of first. Held to them, it could never ask for more.
    extraClientMetadata: {
      properties: ["more scopes"],
      validator(context, name, value, metadata) {
        metadata.scope &&= SCOPES.join(" ");
      },
    },
    issueRefreshToken: () => true,
    features: {
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
    Object.assign(token.payload, { aud: RESOURCE, client_id: "program" });
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

process.stdout.write(`${JSON.stringify({ oidc: await oidc(), mock: await mock() })}\n`);
